"""A preview of joined rows: what would be used, and how."""

from dataclasses import replace

import pandas as pd

from labelchef.base.intake import ColumnRole, FileRole, Plan, Preview, PreviewRow
from labelchef.believe.vote_forms import PROBABILITY
from labelchef.data.files.formats import text_of
from labelchef.data.intake.raw import ID, Raw, Rows

LONGEST = 300
"""Characters of a cell that are shown."""


def preview(plan: Plan, raw: Raw, n_rows: int = 20) -> Preview:
    """The first rows of each part, most of them of train, with labels and votes, and everything that was found."""
    parts = [("trusted", raw.trusted), ("test", raw.test), ("train", raw.train)]
    share = {"trusted": max(1, n_rows // 4), "test": max(1, n_rows // 10), "train": n_rows}
    shown: list[PreviewRow] = []
    for split, rows in parts:
        if rows is not None:
            shown += _rows(split, rows, raw, min(share[split], n_rows - len(shown)))
    order = {"train": 0, "trusted": 1, "test": 2}
    gone = dict.fromkeys(raw.hidden, ColumnRole.IGNORED)
    for one in plan.of(FileRole.ITEMS):
        plan = plan.with_file(
            replace(one, columns={**one.columns, **{n: r for n, r in gone.items() if n in one.columns}})
        )
    return Preview(
        plan=plan,
        classes=raw.classes,
        n_train=len(raw.train),
        n_trusted=len(raw.trusted),
        n_test=0 if raw.test is None else len(raw.test),
        sources=tuple(sorted(raw.votes["source"].unique().tolist())),
        content=raw.content,
        rows=tuple(sorted(shown, key=lambda row: order[row.split])),
        findings=raw.findings,
    )


def _rows(split: str, rows: Rows, raw: Raw, count: int) -> list[PreviewRow]:
    ids = rows.frame[ID].iloc[: max(count, 0)].tolist()
    held = {str(name): cells.iloc[: len(ids)].tolist() for name, cells in rows.frame.items() if name in raw.content}
    said = raw.votes[raw.votes["item"].isin(ids)]
    return [
        PreviewRow(
            id=str(key),
            split=split,
            content={name: _cut(text_of(held[name][k])) for name in raw.content},
            label=rows.labels[k],
            votes=_votes(said[said["item"] == key]),
        )
        for k, key in enumerate(ids)
    ]


def _votes(said: pd.DataFrame) -> dict[str, str]:
    """What each source says; of probabilities the largest, with its value."""
    if PROBABILITY not in said.columns:
        return dict(zip(said["source"].tolist(), said["label"].tolist(), strict=True))
    best = said.sort_values(PROBABILITY, kind="stable")
    return {
        source: label if chance >= 1 else f"{label} {chance:.0%}"
        for source, label, chance in zip(best["source"], best["label"], best[PROBABILITY], strict=True)
    }


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else text[: LONGEST - 1] + "…"
