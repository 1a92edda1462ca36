"""From votes to a label, or to 'unresolved'."""

from labelchef.aggregation.majority import Aggregator, MajorityVote

__all__ = ["Aggregator", "MajorityVote"]
