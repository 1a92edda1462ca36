"""Formats in and out, and sources of weak labels."""
