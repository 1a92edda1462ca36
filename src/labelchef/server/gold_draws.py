"""Hidden gold: which trusted samples may be used for it, and the draws that put them among the items of a person.

Half of the trusted samples are the *pool*: they may be shown as gold, and are not shown as neighbours of other items while there
is gold, since a neighbour comes with its label. The others stay neighbours. Every draw is a number in [0, 1) that follows from
the seed of the campaign and from what is drawn, so a restart or a second server draws the same.
"""

import hashlib

POOL_SHARE = 0.5
"""Of the trusted samples; so many gold items a person can get at most, each once."""


def drawn(seed: int, campaign: str, *what: object) -> float:
    """A number in [0, 1) that looks random.

    >>> drawn(0, "digits", "ann", 3) == drawn(0, "digits", "ann", 3), drawn(0, "digits", "ann", 3) == drawn(0, "digits", "bob", 3)
    (True, False)
    """
    text = "\x1f".join(map(str, ("gold", seed, campaign, *what)))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:7], "big") / 2.0**56


def in_pool(seed: int, campaign: str, position: int) -> bool:
    """Whether a trusted sample may be shown as gold, by its position."""
    return drawn(seed, campaign, "pool", position) < POOL_SHARE


def is_due(seed: int, campaign: str, person: str, item_id: int, attempt: int, share: float) -> bool:
    """Whether a gold item comes before this item, so that `share` of what a person gets is gold."""
    return share > 0.0 and drawn(seed, campaign, "due", person, item_id, attempt) < share / (1.0 - share)
