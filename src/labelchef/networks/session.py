"""A campaign on a network: the pipeline's session, looking at the network through its view."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from labelchef.constructors import Construction
from labelchef.domain.records import Decisions, LabelChange, RoundRecord
from labelchef.networks.constructors import NetworkConstruction
from labelchef.networks.model import NetworkModel
from labelchef.pipeline.session import Session


@dataclass
class NetworkSession(Session):
    """Objective and splits are replaced with every model by those of its view; a step that fails gives them back."""

    model: NetworkModel | None = None

    @contextmanager
    def _as_one(self, decisions: Decisions) -> Iterator[LabelChange]:
        before, last = (self.objective, self.validation, self.test), self.construction
        try:
            with super()._as_one(decisions) as change:
                yield change
        except BaseException:
            self.objective, self.validation, self.test = before
            assert self.model is not None
            assert isinstance(last, NetworkConstruction)
            self.model.load(last.weights)
            raise

    def _record(self, construction: Construction, *details: Any, **named: Any) -> RoundRecord:
        assert isinstance(construction, NetworkConstruction)
        view = construction.view
        assert view is not None
        self.objective, self.validation, self.test = view.objective, view.validation, view.test
        return super()._record(construction, *details, **named)
