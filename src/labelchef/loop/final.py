"""The final model: softmax regression trained from scratch on everything that is known, with the last choices.

Rounds update the model from the one before, so it depends, within the tolerance, on the order of the answers. The final model
is the constructor's first model on the labels as they stand: it depends on data, labels and settings only, not on the rounds.
"""

from collections.abc import Sequence

import numpy as np

from labelchef.base.errors import ConflictError
from labelchef.base.inputs import ClassNames
from labelchef.loop.session import Session
from labelchef.model.classifier import LinearClassifier


def final_classifier(
    session: Session, names: ClassNames, *, feature_names: Sequence[str] | None = None
) -> LinearClassifier:
    """Fit from scratch to the labels as they stand; the session stays as it is."""
    if not session.labels.weight.any():
        raise ConflictError(
            "nothing is learned yet: there are no trusted samples, no source says anything and nobody has answered; expected at "
            "least one answer",
            code="preparing",
        )
    made = session.from_scratch()
    ruling = session.ruling_of(made)
    rule = {} if ruling is None else {"temperature": ruling.temperature, "offsets": np.array(ruling.offsets)}
    model = LinearClassifier.of(made.point.W, names.as_array(), bias=True, feature_names=feature_names, **rule)
    if ruling is not None and ruling.shift:
        model.intercept += np.array(ruling.shift)
    return model
