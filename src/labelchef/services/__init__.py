"""Use cases: what the command line, and later other front ends, call."""
