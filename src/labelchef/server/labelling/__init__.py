"""People who label: what they are given, what they answer, what they say of it."""
