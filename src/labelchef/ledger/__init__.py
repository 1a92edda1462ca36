"""What happened in a campaign, and what it waits for: one contract, kept in memory, as JSON lines, or in SQL."""

from labelchef.ledger.memory import MemoryLedger
from labelchef.ledger.protocol import Answered, Ledger, Model, Selected, Standing

__all__ = ["Answered", "Ledger", "MemoryLedger", "Model", "Selected", "Standing"]
