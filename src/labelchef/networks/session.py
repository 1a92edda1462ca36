"""A campaign on a network: the pipeline's session, looking at the network through its view."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from labelchef.campaign.gain import gains
from labelchef.campaign.session import Session, Split
from labelchef.constructors import Construction
from labelchef.domain.records import Decisions, LabelChange, RoundRecord
from labelchef.domain.validation import Gain
from labelchef.networks.constructors import NetworkConstruction
from labelchef.networks.model import NetworkModel, View


@dataclass
class NetworkSession(Session):
    """Objective and splits are replaced with every model by those of its view; a step that fails gives them back."""

    model: NetworkModel | None = None
    first: View | None = field(default=None, init=False, repr=False)
    """Of the model before any cleaning."""

    @contextmanager
    def _as_one(self, decisions: Decisions) -> Iterator[LabelChange]:
        before, last = (self.objective, self.steering, self.judging, self.test), self.construction
        try:
            with super()._as_one(decisions) as change:
                yield change
        except BaseException:
            self.objective, self.steering, self.judging, self.test = before
            assert self.model is not None
            assert isinstance(last, NetworkConstruction)
            self.model.load(last.weights)
            raise

    def _record(self, construction: Construction, *details: Any, **named: Any) -> RoundRecord:
        assert isinstance(construction, NetworkConstruction)
        view = construction.view
        assert view is not None
        if self.first is None:
            self.first = view
        self.objective, self.steering, self.judging, self.test = view.objective, view.steering, view.judging, view.test
        return super()._record(construction, *details, **named)

    def gains(self, split: Split) -> dict[str, Gain]:
        """Of each metric: the splits of the first view and of this one hold the same samples."""
        assert self.first is not None, "start() comes first"
        first = self.first.test if split is self.test else self.first.judging
        assert first is not None
        identity = self.parameters
        before, after = first.judged(identity), split.judged(identity)
        return gains(split.examples.y, before, after, self.labels.n_classes, self.seed)
