"""A language model as an annotator: asked about the rows of a batch when it is their turn, and never before."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED, Batch, Votes
from labelchef.sources.asking import ID, Endpoint, Limits, ask
from labelchef.sources.llm import LabelRequest


@dataclass(frozen=True)
class LlmAnnotator:
    """Puts rows to a language model by `sources.asking`, with its limits, its cache and its ceiling of the cost.

    Row k of `frame` is training sample k; `columns` are what the model is shown of a row. `classes` are the names of the classes
    in the order of the cleaner's class ids; the request has the same. A row for which no answer came (the ceiling is reached, the
    endpoint is gone) has no vote, so a router asks someone else; an answer that names no class is a vote 'ambiguous'.
    """

    request: LabelRequest
    frame: pd.DataFrame
    columns: Sequence[str]
    endpoint: Endpoint
    cache: Path
    classes: Sequence[str]
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if set(self.classes) != set(self.request.classes):
            raise InvalidInputError(
                f"the model is asked for the classes {list(self.request.classes)}; expected those of the cleaner: "
                f"{list(self.classes)}",
                code="llm",
            )

    def annotate(self, batch: Batch) -> Votes:
        """One vote for each row that got an answer."""
        if len(batch) and int(batch.indices.max()) >= len(self.frame):
            raise InvalidInputError(
                f"item {int(batch.indices.max())} was asked and the frame has {len(self.frame)} rows; expected a row for each "
                "training sample",
                code="llm",
            )
        rows = self.frame.iloc[batch.indices].assign(**{ID: batch.indices.astype(str)})
        said = ask(self.request, rows, self.columns, self.endpoint, self.cache, limits=self.limits)
        ids = {name: k for k, name in enumerate(self.classes)}
        items = [int(item) for item, _ in said.items]
        labels = [UNRESOLVED if reply.answer.label is None else ids[reply.answer.label] for _, reply in said.items]
        return Votes.of([(self.endpoint.model, np.array(items, dtype=np.int64), np.array(labels, dtype=np.int64))])
