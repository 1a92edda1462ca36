"""Accounts, members of campaigns, and how people agree."""
