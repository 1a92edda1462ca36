"""Where weak labels come from: the votes of sources, and models of how far each source can be believed."""

from labelchef.sources.shares import vote_shares
from labelchef.sources.votes import SourceVotes

__all__ = ["SourceVotes", "vote_shares"]
