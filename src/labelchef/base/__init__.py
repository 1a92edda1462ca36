"""Frozen records, enums and errors: used by every other room."""
