"""`EncodedClassifier`: the final model together with the encoder, so that it reads what people have: texts, images, tables.

    X = encoder(rows)   (n, D)           `data.encoders.fitted`
    P, ŷ of X                            `classifier.LinearClassifier`

Its model.npz is that of the classifier with one more array, `encoder`: the bytes of the fitted encoder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import Progress, no_progress
from labelchef.data.encoders.fitted import FittedEncoder
from labelchef.model.classifier import LinearClassifier, read_archive

ENCODER = "encoder"
"""The array of model.npz that holds the encoder."""


@dataclass(eq=False, repr=False)
class EncodedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A trained classifier that encodes its input first; works where scikit-learn takes a fitted one, and can be pickled.

    Rows come as a frame with the columns that the encoder reads, or, where that is one column, as a list of its values. Rows
    that have features of their own (embeddings) give them as `features`.

    >>> from labelchef.base.intake import ColumnRole
    >>> from labelchef.data.encoders.fitted import fit_encoder
    >>> from labelchef.data.encoders.protocol import Content
    >>> rows = Content(pd.DataFrame({"text": ["win money now", "see you soon", "win now"]}))
    >>> encoded = fit_encoder(rows, {"text": ColumnRole.TEXT}, ["tfidf"])
    >>> W = np.linalg.pinv(encoded.X) @ np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> model = EncodedClassifier(encoded.encoder, LinearClassifier(W, np.zeros(2), ["ham", "spam"]))
    >>> model.predict(["win money", "see you"]).tolist()
    ['spam', 'ham']
    """

    encoder: FittedEncoder
    classifier: LinearClassifier

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002 (scikit-learn passes them)
        """Changes nothing: the model is trained already."""
        return self

    def encode(
        self,
        rows: Any,
        *,
        features: NDArray[np.floating[Any]] | None = None,
        media: Path | None = None,
        progress: Progress = no_progress,
    ) -> NDArray[np.float32]:
        """X (n, D)."""
        return self.encoder.transform(self.frame(rows), features, media, progress)

    def predict_proba(self, rows: Any, **given: Any) -> Float64s:
        """Class probabilities (n, C); `given` as in `encode`."""
        return self.classifier.predict_proba(self.encode(rows, **given))

    def predict(self, rows: Any, **given: Any) -> "np.ndarray[Any, Any]":
        """Class names (n,), by the decision rule."""
        return self.classifier.predict(self.encode(rows, **given))

    def frame(self, rows: Any) -> pd.DataFrame:
        """Rows as a frame."""
        if isinstance(rows, pd.DataFrame):
            return rows
        if hasattr(rows, "to_pandas") and hasattr(rows, "columns"):
            return pd.DataFrame(rows.to_pandas())
        columns = self.encoder.columns
        values = rows.tolist() if hasattr(rows, "tolist") else rows
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InvalidInputError(
                f"the rows are of type {type(rows).__name__}; expected a frame with the columns {list(columns)}, or a list",
                code="rows",
            )
        if all(isinstance(one, Mapping) for one in values) and values:
            return pd.DataFrame(list(values))
        if len(columns) != 1 or any(isinstance(one, list | tuple) for one in values):
            raise InvalidInputError(
                f"the rows came as a list; the model reads the columns {list(columns)}. Give a frame with these columns",
                code="rows",
            )
        return pd.DataFrame({columns[0]: pd.Series(list(values), dtype=object)})

    @property
    def classes_(self) -> "np.ndarray[Any, Any]":
        """(C,) class names."""
        return self.classifier.classes_

    def save(self, path: str | Path, *, settings: Mapping[str, Any] | None = None) -> Path:
        """Write model.npz, whole and without pickle."""
        held = {ENCODER: np.frombuffer(self.encoder.to_bytes(), dtype=np.uint8)}
        return self.classifier.save(path, settings=settings, more=held)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote. Nothing in the file is executed."""
        model = load_model(path)
        if not isinstance(model, cls):
            raise InvalidInputError(
                f"{path} holds a model of plain features, without an encoder; read it with LinearClassifier.load",
                code="file",
            )
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return True


def load_model(path: str | Path) -> "LinearClassifier | EncodedClassifier":
    """The model in a model.npz, with its encoder if there is one. Nothing in the file is executed."""
    path = Path(path)
    archive = read_archive(path)
    classifier = LinearClassifier.of_archive(archive, path)
    raw = archive.arrays.get(ENCODER)
    if raw is None:
        return classifier
    try:
        encoder = FittedEncoder.of_bytes(np.ascontiguousarray(raw, dtype=np.uint8).tobytes())
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}", code="file") from None
    if encoder.width != classifier.n_features_in_:
        raise InvalidInputError(
            f"{path} is a damaged labelchef model: its encoder gives {encoder.width} columns, its classifier reads "
            f"{classifier.n_features_in_}. Restore it from a copy",
            code="file",
        )
    return EncodedClassifier(encoder, classifier)
