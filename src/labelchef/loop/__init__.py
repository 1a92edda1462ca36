"""A campaign in memory: session, steps, stopping rules, ledger, replay, and `LabelCleaner`."""
