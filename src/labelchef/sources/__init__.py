"""Where weak labels come from."""

from labelchef.sources.weak import vote_shares

__all__ = ["vote_shares"]
