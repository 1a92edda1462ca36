"""Annotators vote on batches: simulated people, recorded crowds, an oracle, the suggestion, any callable."""

from labelchef.annotators.people import (
    Annotator,
    CallableAnnotator,
    GroundTruth,
    Panel,
    RecordedVotes,
    SimulatedAnnotators,
    Suggestion,
    takes_suggestions,
)
from labelchef.annotators.strategies import STRATEGIES, make_strategy, make_voters

__all__ = [
    "STRATEGIES",
    "Annotator",
    "CallableAnnotator",
    "GroundTruth",
    "Panel",
    "RecordedVotes",
    "SimulatedAnnotators",
    "Suggestion",
    "make_strategy",
    "make_voters",
    "takes_suggestions",
]
