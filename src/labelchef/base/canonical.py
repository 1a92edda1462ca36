"""One way to write JSON: the same value gives the same bytes everywhere."""

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    """Keys in order, no spaces, ASCII only; neither NaN nor infinity.

    >>> canonical({"b": [1, 0.5], "a": "é"})
    b'{"a":"\\\\u00e9","b":[1,0.5]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical bytes.

    >>> digest({})[:8]
    '44136fa3'
    """
    return hashlib.sha256(canonical(value)).hexdigest()
