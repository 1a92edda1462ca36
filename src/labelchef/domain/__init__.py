"""Frozen records, enums and errors: the words every other room speaks."""
