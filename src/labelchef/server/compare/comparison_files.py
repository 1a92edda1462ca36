"""A comparison of selectors as people read it: a table in words, and files of it."""

from pathlib import Path

import pandas as pd

from labelchef.base.errors import InvalidInputError
from labelchef.base.files import writing_to
from labelchef.base.validation import SHARES, Comparison, Standing
from labelchef.data.files.artefacts import write_text
from labelchef.data.files.tables import csv_text

FILES = ("comparison.csv", "curves.csv", "comparison.md", "comparison.svg")
_NONE = "–"


def headers(found: Comparison) -> list[str]:
    """Of the table's columns."""
    shares, reached = [f"{share:.0%}" for share in SHARES], f"labels to {found.level:.3f}"
    return ["selector", *shares, "area", "against as asked", "", reached, "suggestion right", "seconds"]


def cells(one: Standing) -> list[str]:
    """A line of the table."""
    gain = one.difference
    half = "" if one.area_half is None else f" ± {one.area_half:.3f}"
    return [
        one.selector,
        *(f"{value:.3f}" for value in one.after),
        f"{one.area:.3f}{half}",
        _NONE if gain is None else f"{gain.change:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})",
        one.verdict or "",
        _NONE if one.labels_to_reach is None else f"{one.labels_to_reach:.0f}",
        _NONE if one.suggestion_share is None else f"{one.suggestion_share:.0%}",
        f"{one.seconds:.2f}",
    ]


def title(found: Comparison) -> str:
    """What the table shows."""
    better = "less is better" if found.metric == "loss" else "more is better"
    return (
        f"{found.split} {found.metric} ({better}) after a share of {found.labels} labels, {found.batch_size} a round; "
        "area is its mean on the way"
    )


def write_comparison(found: Comparison, folder: Path) -> tuple[Path, ...]:
    """Write table, curves, Markdown and chart into a folder; each file appears whole."""
    from labelchef.judge.report.charts import curves_svg

    texts = {
        "comparison.csv": csv_text(_table(found)),
        "curves.csv": csv_text(curves(found)),
        "comparison.md": markdown(found),
        "comparison.svg": curves_svg(curves(found), found.metric, "light"),
    }
    with writing_to(folder, "name another folder", kind=InvalidInputError):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    return tuple(folder / name for name in texts)


def curves(found: Comparison) -> pd.DataFrame:
    """A row a selector and point: selector, labels, value."""
    rows = [
        (one.selector, asked, value)
        for one in found.standings
        for asked, value in zip(found.asked, one.curve, strict=True)
    ]
    return pd.DataFrame(rows, columns=["selector", "labels", "value"])


def markdown(found: Comparison) -> str:
    """The table with what a reader should know."""
    lines = [headers(found), ["---"] * len(headers(found)), *(cells(one) for one in found.standings)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "\n".join(f"- {note}" for note in found.notes)
    return (
        f"# Selectors compared on {found.campaign}\n\n{title(found).capitalize()}.\n\n{table}\n\n{notes}\n\n"
        "![Curves](comparison.svg)\n"
    )


def _table(found: Comparison) -> pd.DataFrame:
    rows = []
    for one in found.standings:
        gain, after = one.difference, zip(SHARES, one.after, strict=True)
        rows.append(
            {
                "selector": one.selector,
                "replays": one.repeats,
                **{f"{found.metric}_{round(100 * share)}": value for share, value in after},
                "area": one.area,
                "area_half": one.area_half,
                "difference": gain and gain.change,
                "low": gain and gain.low,
                "high": gain and gain.high,
                "verdict": one.verdict,
                **{name: getattr(one, name) for name in ("labels_to_reach", "suggestion_share", "seconds")},
            }
        )
    return pd.DataFrame(rows)
