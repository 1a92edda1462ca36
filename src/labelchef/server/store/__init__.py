"""Campaigns, items, votes and rounds in SQL; arrays as files with digests (extra: `labelchef[serve]`)."""
