"""Seeded programs that print ratios measured side by side in one run, each beside a fidelity figure."""
