"""Data in: files on their way to a campaign, and votes that were cast elsewhere."""
