"""Joined rows become the data of a campaign: content is encoded, blocks are weighed, votes go to their splits.

Raw  →  X (N, D), X_val (n, D), X_test      by encoders fitted on training and trusted rows; they never see labels
        votes, votes_val                    by id
        contents                            what people see: id, text, image, and every other content column as a field
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, Progress, Severity, no_progress
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData, Known
from labelchef.data.contents import Contents
from labelchef.data.encoders.fitted import Encoded, FittedEncoder, fit_encoder
from labelchef.data.encoders.protocol import Block, Content
from labelchef.data.encoders.specs import AUTO, EncoderSpecs
from labelchef.data.intake.raw import ID, Raw, Rows
from labelchef.data.intake.weighing import Weighing, weigh

_SHOWN = ("text", "image")


@dataclass(frozen=True)
class Assembled:
    """The data of a campaign, the encoder that made its features, and how its blocks were weighed."""

    data: CampaignData
    encoder: FittedEncoder
    weighing: Weighing


def assemble(
    raw: Raw,
    settings: Settings,
    specs: EncoderSpecs = (AUTO,),
    *,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> Assembled:
    """Encode the content and collect everything that a campaign is made of.

    What networks compute is kept in the folder `cache`, so that a run that was interrupted goes on.
    """
    refuse_errors(raw)
    parts = Content.stacked([_content(raw, raw.train), _content(raw, raw.trusted)])
    encoded = fit_encoder(parts, raw.content, specs, cache=cache, seed=settings.seed, progress=progress)
    data = _data(raw, encoded, progress)
    weighing = weigh(encoded, data, settings, progress)
    if set(weighing.weights) != {1.0}:
        encoded = encoded.weighted(weighing.weights)
        data = _with_features(data, raw, encoded, progress)
    return Assembled(data, replace(encoded.encoder, id_column=raw.id_column), weighing)


def refuse_errors(raw: Raw) -> None:
    """Refuse rows in which something was found that must be mended first."""
    errors = [one for one in raw.findings if one.severity is Severity.ERROR]
    if errors:
        more = "" if len(errors) == 1 else f". There are {len(errors) - 1} more such findings"
        raise InvalidInputError(f"{errors[0].message}{more}", code=errors[0].code)


def _data(raw: Raw, encoded: Encoded, progress: Progress) -> CampaignData:
    X, n, test = encoded.X, len(raw.train), raw.test
    votes = _votes(raw, raw.train)
    sources = () if votes is None else votes["source"].unique()
    trusted = len(raw.trusted) > 0
    return CampaignData.of(
        X[:n],
        votes=votes,
        votes_val=_votes(raw, raw.trusted, sources) if trusted else None,
        X_val=X[n:] if trusted else None,
        y_val=list(raw.trusted.labels) if trusted else None,
        classes=raw.classes,
        known=Known(
            X_test=None if test is None else _encoded(raw, test, encoded.encoder, progress),
            y_test=None if test is None else list(test.labels),
            y_clean=list(raw.train.labels) if any(one is not None for one in raw.train.labels) else None,
        ),
        contents=Contents(
            _shown(raw, raw.train),
            _shown(raw, raw.trusted),
            None if test is None else _shown(raw, test),
            raw.media,
            tuple(_field_name(name) for name in raw.columns(ColumnRole.IMAGE)[1:]),
        ),
    )


def _with_features(data: CampaignData, raw: Raw, encoded: Encoded, progress: Progress) -> CampaignData:
    """The same data with features of other weights."""
    X, n = encoded.X, len(raw.train)
    test = data.test
    if test is not None and raw.test is not None:
        test = (_encoded(raw, raw.test, encoded.encoder, progress), test[1])
    return replace(data, X=X[:n], validation=(X[n:], data.validation[1]), test=test)


def _content(raw: Raw, rows: Rows) -> Content:
    return Content(rows.frame, rows.features, raw.media)


def _encoded(raw: Raw, rows: Rows, encoder: FittedEncoder, progress: Progress) -> Block:
    return encoder.transform(rows.frame, rows.features, raw.media, progress)


def _votes(raw: Raw, rows: Rows, sources: Iterable[str] | None = None) -> pd.DataFrame | None:
    """The long table of votes on the rows of a split, of all sources or of these; None where there is no such vote."""
    held = raw.votes["item"].isin(set(rows.ids))
    if sources is not None:
        held &= raw.votes["source"].isin(set(sources))
    return raw.votes[held].reset_index(drop=True) if held.any() else None


def _shown(raw: Raw, rows: Rows) -> pd.DataFrame:
    """What people see of the rows: id, text, image; every other content column is a field.

    Several text columns are one text, each below the other. Of several image columns the first is the image, the others are
    fields that are images too.
    """
    found: dict[str, list[object]] = {ID: list(rows.ids)}
    texts, images = raw.columns(ColumnRole.TEXT), raw.columns(ColumnRole.IMAGE)
    if texts:
        found["text"] = list(_content(raw, rows).texts(texts))
    if images:
        found["image"] = rows.frame[images[0]].tolist()
    for name, column in rows.frame.items():
        if name in raw.content and name not in (*texts, *images[:1]):
            found[_field_name(str(name))] = _as_shown(column)
    return pd.DataFrame({name: np.array(values, dtype=object) for name, values in found.items()})


def _field_name(column: str) -> str:
    """What a column is called among the fields of an item."""
    return f"{column} (column)" if column in (ID, *_SHOWN) else column


def _as_shown(column: "pd.Series[Any]") -> list[object]:
    """Numbers of a column that are all whole are shown whole: 7, not 7.0."""
    values = column.tolist()
    if column.dtype.kind != "f" or any(value % 1 for value in values if value == value):
        return list(values)
    return [None if value != value else int(value) for value in values]
