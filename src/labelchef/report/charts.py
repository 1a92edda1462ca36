"""The report's charts, as Vega-Lite specifications drawn to SVG: no script, no network."""

from typing import Any

import numpy as np
import pandas as pd

from labelchef.domain.arrays import Float64s

WIDTH, HEIGHT = 520, 250
_NAMES = {"loss": "loss", "accuracy": "accuracy", "f1_macro": "macro-F1", "f1": "F1"}
_PHASES = ["select", "annotate", "aggregate", "construct", "evaluate"]


def metric_chart(history: pd.DataFrame, metric: str, target: float | None = None) -> Any:
    """A metric per label asked, on validation (what judges and, where that is apart, what steers) and test."""
    import altair as alt

    parts = [
        pd.DataFrame({"asked": history["spent"], "value": history[f"{key}_{metric}"], "split": split})
        for key, split in (("val", "validation"), ("test", "test"), ("steer", "steering"))
        if f"{key}_{metric}" in history.columns
        and not (key == "steer" and history[f"steer_{metric}"].equals(history[f"val_{metric}"]))
    ]
    name = _NAMES[metric]
    chart = (
        alt.Chart(pd.concat(parts), title=f"{name} as labels are cleaned")
        .mark_line(point={"size": 18})
        .encode(
            x=alt.X("asked:Q", title="samples asked"),
            y=alt.Y("value:Q", title=name, scale=alt.Scale(zero=False)),
            color=alt.Color(
                "split:N",
                title=None,
                scale=alt.Scale(domain=["validation", "test", "steering"], range=["#3b6fb6", "#d9822b", "#999999"]),
                legend=alt.Legend(values=[part["split"].iloc[0] for part in parts]),
            ),
        )
    )
    if target is None:
        return _sized(chart)
    line = alt.Chart(pd.DataFrame({"target": [target]})).mark_rule(strokeDash=[6, 4], color="#3a8f5b")
    return _sized(alt.layer(chart, line.encode(y="target:Q")))


def influence_chart(influence: Float64s, selected: Float64s) -> Any:
    """Distribution of the influence at the start, over all weak samples, with what was selected first marked."""
    import altair as alt

    finite = influence[np.isfinite(influence)]
    counts, edges = np.histogram(finite, bins=60)
    bars = pd.DataFrame({"low": edges[:-1], "high": edges[1:], "samples": counts, "floor": 0})
    bars = bars[counts > 0]
    chart = (
        alt.Chart(bars, title="Influence of each weak label at the start")
        .mark_bar(color="#3b6fb6")
        .encode(
            x=alt.X("low:Q", title="N × predicted change of the steering loss (negative helps)"),
            x2="high:Q",
            y=alt.Y("samples:Q", title="samples", scale=alt.Scale(type="symlog", constant=5)),
            y2="floor:Q",
        )
    )
    first = pd.DataFrame({"influence": selected})
    ticks = (
        alt.Chart(first)
        .mark_tick(color="#d9822b", thickness=2, size=HEIGHT / 8)
        .encode(x="influence:Q", y=alt.value(HEIGHT - HEIGHT / 16))
    )
    return _sized(alt.layer(chart, ticks))


def change_chart(history: pd.DataFrame) -> Any:
    """What INFL foresaw for each round beside what came of it."""
    import altair as alt

    rounds = history.iloc[1:]
    parts = [
        pd.DataFrame({"round": rounds["round"], "change": rounds[f"{kind}_change"], "kind": kind})
        for kind in ("predicted", "realised")
    ]
    frame = pd.concat(parts).dropna()  # not every selector foresees a change
    chart = (
        alt.Chart(frame, title="Change of the steering loss, round by round")
        .mark_line(point={"size": 18})
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("change:Q", title="change of the loss"),
            color=alt.Color(
                "kind:N", title=None, scale=alt.Scale(domain=["predicted", "realised"], range=["#8a6fb0", "#3b6fb6"])
            ),
        )
    )
    return _sized(chart)


def agreement_chart(agreement: pd.DataFrame) -> Any:
    """Share of the suggestions, weak labels and decisions that equal the truth; columns round, share, what."""
    import altair as alt

    chart = (
        alt.Chart(agreement, title="Agreement with the true label, of the samples asked so far")
        .mark_line(point={"size": 18})
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("share:Q", title="share", axis=alt.Axis(format="%")),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=["decided", "suggested", "weak"], range=["#3a8f5b", "#3b6fb6", "#999999"]),
            ),
        )
    )
    return _sized(chart)


def candidates_chart(history: pd.DataFrame, n_train: int) -> Any:
    """How many samples a round evaluated exactly, of all."""
    import altair as alt

    rounds = history.iloc[1:]
    frame = pd.DataFrame(
        {
            "round": rounds["round"],
            "share": np.maximum(rounds["candidates"], 1) / n_train,
            "how": np.where(rounds["fell_back"], "everything", "what bounds left over"),
        }
    )
    chart = (
        alt.Chart(frame, title="Samples evaluated exactly to find the batch")
        .mark_bar()
        .encode(
            x=alt.X("round:O", title="round", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("share:Q", title="share of the training set", axis=alt.Axis(format="%")),
            color=alt.Color("how:N", title=None, scale=alt.Scale(range=["#999999", "#3b6fb6"])),
        )
    )
    return _sized(chart)


def seconds_chart(history: pd.DataFrame) -> Any:
    """Time per phase; the initialisation is left to the text, it would dwarf the rest."""
    import altair as alt

    rounds = history.iloc[1:]
    parts = [
        pd.DataFrame({"round": rounds["round"], "ms": 1e3 * rounds[f"seconds_{phase}"], "phase": phase})
        for phase in _PHASES
    ]
    chart = (
        alt.Chart(pd.concat(parts), title="Time a round")
        .mark_bar()
        .encode(
            x=alt.X("round:O", title="round", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("ms:Q", title="milliseconds"),
            color=alt.Color("phase:N", title=None, sort=_PHASES, scale=alt.Scale(scheme="tableau10")),
        )
    )
    return _sized(chart)


def distance_chart(history: pd.DataFrame) -> Any:
    """How far each round's model can be from the optimum, at most."""
    import altair as alt

    frame = pd.DataFrame({"round": history["round"], "distance": np.maximum(history["distance_to_optimum"], 1e-16)})
    chart = (
        alt.Chart(frame, title="Distance of the model to the optimum, at most")
        .mark_line(point={"size": 18}, color="#3b6fb6")
        .encode(
            x=alt.X("round:Q", title="round"),
            y=alt.Y("distance:Q", title="‖∇F‖ / l2", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e")),
        )
    )
    return _sized(chart)


def as_svg(chart: Any) -> str:
    """The chart as an SVG element."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(chart.to_json(validate=False)))


def _sized(chart: Any) -> Any:
    return chart.properties(width=WIDTH, height=HEIGHT, background="transparent").configure(
        font="system-ui, sans-serif",
        view={"stroke": None},
        axis={
            "gridColor": "#8883",
            "domainColor": "#888",
            "tickColor": "#888",
            "labelColor": "#888",
            "titleColor": "#888",
        },
        title={"anchor": "start", "fontSize": 14, "color": "#888"},
        legend={"orient": "top", "labelColor": "#888"},
    )
