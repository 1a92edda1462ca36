"""Selectors compared on a campaign's own labels."""
