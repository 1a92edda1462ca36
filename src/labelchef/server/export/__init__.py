"""What is taken home: labels, models, reports, and the ledger with its proof."""
