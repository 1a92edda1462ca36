"""Values that every database can hold."""

import secrets


def new_public_id() -> str:
    """A random id that may stand in an address."""
    return secrets.token_urlsafe(12).replace("-", "a").replace("_", "b")


def storable(text: str) -> bool:
    """Whether every database can hold this text: no null character, no half of a surrogate pair.

    >>> storable("ann"), storable("a\\x00b"), storable("\\ud800")
    (True, False, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text
