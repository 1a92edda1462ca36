"""What happened in a campaign, and what it waits for: one contract, kept in memory, as JSON lines, or in SQL."""

from labelchef.loop.ledger.memory import MemoryLedger
from labelchef.loop.ledger.protocol import Answered, Ledger, Model, Selected, Standing

__all__ = ["Answered", "Ledger", "MemoryLedger", "Model", "Selected", "Standing"]
