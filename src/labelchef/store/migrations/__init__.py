"""The schema, step by step; run at open, in one transaction."""
