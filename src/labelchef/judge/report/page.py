"""The HTML report: one file, no script, nothing fetched from anywhere."""

import base64
import html
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from labelchef.base.arrays import Float64s
from labelchef.base.errors import MissingExtraError
from labelchef.base.learning import ABOUT_SOURCES, ABOUT_USE
from labelchef.base.validation import BASELINES, THIS_MODEL, Figure, Gain

_LONG = 40
"""Characters from which on the text of a cell is wrapped."""


@dataclass(frozen=True)
class Thumbnail:
    """A small image in a cell of a table."""

    png: bytes

    def tag(self) -> str:
        """As HTML; the image is in the page itself."""
        return f'<img alt="" src="data:image/png;base64,{base64.b64encode(self.png).decode()}">'


@dataclass(frozen=True)
class ReportData:
    """Everything the report shows."""

    title: str
    message: str
    history: pd.DataFrame
    settings: dict[str, Any]
    influence: Float64s
    """Scores of all training samples at the start, NaN where clean."""
    first_selected: Float64s
    asked: pd.DataFrame
    """A row a decision, asked for or not: round, item, weak, suggested, decided, support, influence, text, image, truth."""
    counted: str = ""
    """How many samples were asked, and what the other decisions are (`AskedCount`)."""
    n_samples: int = 0
    """Training samples."""
    target_metric: str = "f1_macro"
    target: float | None = None
    notes: list[str] = field(default_factory=list)
    gains: dict[str, Gain] = field(default_factory=dict)
    """Of the target metric by split, where someone judges."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """The target metric at the end by split, where someone judges."""
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    """By split and name in words: the target metric of a model without weak labels."""
    audit: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The audit as items came in: items, accuracy, low, high; empty without one."""
    sources: pd.DataFrame | None = None
    """A row a source (`SourceFacts`); None where nothing is learned about sources."""
    source_notes: list[str] = field(default_factory=list)


def require_report() -> None:
    """Say early what is missing, before any work is done."""
    missing = [name for name in ("altair", "vl_convert") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the HTML report needs {' and '.join(missing)}; pip install 'labelchef[report]', or go without: --no-report",
            code="report",
        )


def render_report(data: ReportData) -> str:
    """The whole page."""
    require_report()
    figures = "\n".join(
        f"<figure>{svg}<figcaption class=note>{html.escape(words)}</figcaption></figure>"
        for svg, words in _charts(data)
    )
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in data.notes)
    return _PAGE.format(
        title=html.escape(data.title),
        message=html.escape(data.message),
        tiles=_tiles(data),
        notes=notes,
        figures=figures,
        sources=_sources(data),
        asked=_table(data.asked.head(200)),
        shown=min(200, len(data.asked)),
        total=len(data.asked),
        counted=html.escape(data.counted),
        history=_table(data.history.map(lambda v: f"{v:.4g}" if isinstance(v, float) and not np.isnan(v) else v)),
        settings=_table(pd.DataFrame({"setting": list(data.settings), "value": list(data.settings.values())})),
    )


def _about_validation(data: ReportData) -> str:
    """Which samples validation figures are about, in words."""
    figure = data.figures.get("validation")
    if figure is None:
        return "all trusted samples, which steer the selection too: optimistic"
    if figure.cross_fitted:
        return f"the {figure.samples} trusted samples, each judged by a model without it (cross-fitted)"
    return f"the {figure.samples} trusted samples that are held out"


def _charts(data: ReportData) -> Iterator[tuple[str, str]]:
    """Each chart, and which samples it is about."""
    from labelchef.judge.report import charts

    history, metric = data.history, data.target_metric
    every = f"all {data.n_samples or len(data.influence)} training samples"
    asked = f"the {int(history['spent'].iloc[-1])} samples asked"
    parts = []
    for key, split in (("val", "validation"), ("test", "test"), ("steer", "steering")):
        for part, model in (("", THIS_MODEL), *((f"{name}_", words) for name, words in BASELINES.items())):
            values = history.get(f"{key}_{part}{metric}")
            if values is not None and not (key == "steer" and values.equals(history[f"val_{metric}"])):
                columns = {"samples asked": history["spent"], "value": values, "split": split, "model": model}
                parts.append(pd.DataFrame(columns).dropna())
    levels = pd.concat(parts, ignore_index=True)
    title = f"{charts.METRICS[metric]} as labels are cleaned"
    about = f"Validation: {_about_validation(data)}."
    if "test" in data.gains:
        about += f" Test: the {data.gains['test'].samples} test samples, used for nothing else."
    if not levels.empty:
        yield charts.metric_svg(levels, metric, data.target, "report", "samples asked", title=title), about
    if not data.audit.empty:
        svg = charts.audit_svg(data.audit, "report", title="Accuracy in the audit")
        many = int(data.audit["items"].iloc[-1])
        yield svg, f"The {many} samples that were drawn by chance and predicted before people answered them."
    rounds = history.iloc[1:]
    if rounds.empty:
        return
    told = f"{every}: the first model's own belief, before anybody was asked. Ticks: the samples of the first batch."
    if np.isfinite(data.influence).any():
        yield charts.influence_svg(data.influence, data.first_selected), told[:1].upper() + told[1:]
    if "truth" in data.asked.columns:
        yield (
            charts.truth_svg(agreement_by_round(data.asked)),
            f"{asked[:1].upper()}{asked[1:]}, beside the known truth.",
        )
    if rounds["predicted_change"].notna().any():  # not every selector predicts
        kinds = rounds.rename(columns={"predicted_change": "predicted", "realised_change": "realised"})
        changes = kinds.melt("round", ["predicted", "realised"], "kind", "change").dropna()
        svg = charts.change_svg(changes, "report", title="Change of the steering loss, round by round")
        yield (
            svg,
            "Loss on the trusted samples that train or steer: what was predicted of each round's answers, and what came.",
        )
    phases = rounds.set_index("round").filter(regex="^seconds_").rename(columns=lambda c: c.removeprefix("seconds_"))
    timed = (1e3 * phases).reset_index().melt("round", var_name="phase", value_name="ms")
    yield charts.phases_svg(timed), f"Time of the server a round, over {every}; without the time of people."
    far = history[["round"]].assign(distance=np.maximum(history["distance_to_optimum"], 1e-16))
    yield charts.distance_svg(far), f"The model of each round, on {every} and the trusted ones that train."
    fell_back = rounds["fell_back"].astype(bool)
    if (~fell_back & np.isfinite(rounds["slack"].astype(float))).any():  # else there was nothing to prune
        share = np.maximum(rounds["candidates"], 1) / len(data.influence)
        how = np.where(fell_back, "everything", "what bounds left over")
        svg = charts.candidates_svg(rounds[["round"]].assign(share=share, how=how))
        yield svg, f"Of {every}: the share whose influence had to be computed in full."


def _sources(data: ReportData) -> str:
    """The section on sources; empty where nothing is learned about them."""
    if data.sources is None or data.sources.empty:
        return ""
    from labelchef.judge.report import charts

    frame = data.sources
    svg = charts.sources_svg(frame, "report", title="Accuracy of the sources")
    shown = pd.DataFrame(
        {
            "source": frame["name"],
            "votes": frame["votes"],
            "coverage": frame["coverage"].map("{:.0%}".format),
            "measured": frame["accuracy"].map("{:.3f}".format).replace("nan", "not yet"),
            "95 % interval": [f"{low:.2f} to {high:.2f}" for low, high in zip(*_bounds(frame), strict=True)],
            "n": frame["measured_on"],
            "believed": frame["believed"].map("{:.3f}".format),
            "conflicts": frame["conflicts"].map("{:.0%}".format),
            "weight": frame["weight"].map("{:+.2f}".format),
            "use": frame["use"],
            "if muted": frame["muting"].map("{:+.5f}".format),
        }
    ).replace(r"^\+?nan%?$", "–", regex=True)
    uses = [f"{use.capitalize()}: {ABOUT_USE[use]}" for use in dict.fromkeys(frame["use"])]
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in [*data.source_notes, *uses, ABOUT_SOURCES])
    return f"<h2>Sources</h2>{notes}<figure class=sources>{svg}</figure>{_table(shown)}"


def _bounds(frame: pd.DataFrame) -> tuple[list[float], list[float]]:
    return frame["accuracy_low"].tolist(), frame["accuracy_high"].tolist()


def agreement_by_round(asked: pd.DataFrame) -> pd.DataFrame:
    """Running shares of the asked samples whose suggestion, weak label and decision equal the truth."""
    known = asked[asked["truth"].notna()]
    parts = []
    for what in ("suggested", "decided", "weak"):
        told = known[known[what].notna()] if what == "suggested" else known  # not every selector suggests
        right = (told[what].astype(str) == told["truth"].astype(str)).groupby(told["round"]).agg(["sum", "count"])
        total = right.cumsum()
        parts.append(pd.DataFrame({"round": total.index, "share": total["sum"] / total["count"], "what": what}))
    return pd.concat(parts, ignore_index=True)


def _tiles(data: ReportData) -> str:
    first, last = data.history.iloc[0], data.history.iloc[-1]
    metric = data.target_metric
    tiles = []
    for key, split in (("val", "validation"), ("test", "test")):
        column, figure = f"{key}_{metric}", data.figures.get(split)
        if column in data.history.columns:
            now = "" if figure is None else f", now 95 %: {figure.low:.3f} to {figure.high:.3f}"
            cut = (figure is not None and figure.cross_fitted) or np.isnan(first[column])
            now_is = "not yet" if np.isnan(last[column]) else f"{last[column]:.3f}"
            tiles.append((f"{split} {metric}{now}", now_is if cut else f"{first[column]:.3f} → {now_is}"))
        gain = data.gains.get(split)
        if gain is not None:
            few = "" if gain.doubt is None else f"; too small to judge ({gain.doubt})"
            where = gain.samples if split == "test" else gain.measured_on
            what = f"gain on {split} ({where}{' samples' if split == 'test' else ''}), 95 % interval{few}"
            tiles.append((what, f"{gain.low:+.3f} to {gain.high:+.3f}"))
        beside = data.baselines.get(split, {})
        if beside:
            tiles.append((f"{split} {metric} {' · '.join(beside)}", " · ".join(f"{v:.3f}" for v in beside.values())))
    tiles.append(("samples asked", f"{int(last['spent'])}"))
    tiles.append(("labels changed", f"{int(data.history['changed'].sum())}"))
    if "truth" in data.asked.columns:
        known = data.asked.dropna(subset=["truth", "suggested"]).astype(str)
        if len(known):
            tiles.append(("suggestions that were true", f"{np.mean(known['suggested'] == known['truth']):.0%}"))
    seconds = data.history.iloc[1:][[c for c in data.history.columns if c.startswith("seconds_")]].sum(axis=1)
    if len(seconds):
        tiles.append(("median time a round", f"{1e3 * float(seconds.median()):.0f} ms"))
    return "".join(f"<div class=tile><b>{html.escape(v)}</b><span>{html.escape(k)}</span></div>" for k, v in tiles)


def _table(frame: pd.DataFrame) -> str:
    head = "".join(f"<th>{html.escape(str(c))}</th>" for c in frame.columns)
    body = "".join("<tr>" + "".join(_cell(v) for v in row) + "</tr>" for row in frame.itertuples(index=False))
    return f"<div class=scroll tabindex=0><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(value: Any) -> str:
    if isinstance(value, Thumbnail):
        return f"<td>{value.tag()}</td>"
    text = _shown(value)
    return f"<td{' class=long' if len(text) > _LONG else ''}>{html.escape(text)}</td>"


def _shown(value: Any) -> str:
    """A cell's text; a dash for what is not known."""
    return "–" if value is None or (isinstance(value, float) and np.isnan(value)) else str(value)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8883; --soft: light-dark(#595959, #ababab); }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2rem auto; padding: 0 1rem;
  background: Canvas; color: CanvasText; }}
h1 {{ font-size: 1.5rem; margin: 0; }} h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; }}
.tile {{ border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem; }}
.tile b {{ display: block; font-size: 1.25rem; }} .tile span, .note, footer {{ color: var(--soft); }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 500px), 1fr)); gap: 1.5rem; }}
figure {{ margin: 0; }} figure.sources {{ max-width: 44rem; margin-bottom: 1rem; }} figure svg {{ width: 100%; height: auto; }}
.scroll {{ overflow: auto; max-height: 26rem; border: 1px solid var(--line); border-radius: 8px; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }}
td.long {{ white-space: normal; min-width: 18rem; }} td img {{ display: block; max-height: 4rem; }}
th {{ position: sticky; top: 0; background: Canvas; }}
summary {{ cursor: pointer; font-weight: 600; margin: 1.25rem 0 .5rem; }}
</style></head><body><main>
<h1>{title}</h1><p>{message}</p>
<div class=tiles>{tiles}</div>{notes}
<div class=figures>{figures}</div>
{sources}
<h2>Decisions</h2><p class=note>{counted}; the first {shown} of {total} are shown.</p>{asked}
<details><summary>Every round</summary>{history}</details>
<details><summary>Settings</summary>{settings}</details>
</main>
<footer><p>Influence is N times the predicted change of the loss on the trusted samples that train or steer: negative helps.
In the table of rounds, <code>val_…</code> is measured on those that judge, <code>steer_…</code> on those that train or steer;
they are the same where none are held out.</p>
</footer>
</body></html>
"""
