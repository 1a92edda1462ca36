"""What to believe: votes of sources, models of how far sources and people are right, and the learner."""

from labelchef.believe.shares import vote_shares
from labelchef.believe.votes import SourceVotes

__all__ = ["SourceVotes", "vote_shares"]
