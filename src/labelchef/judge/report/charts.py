"""Charts as SVG without scripts: of the page in a light and a dark theme, of the HTML report in one that suits both.

Needs the extra `labelchef[report]`, so other modules import this one where they draw.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from labelchef.base.arrays import Float64s
from labelchef.base.validation import AS_ASKED, BASELINES, THIS_MODEL


@dataclass(frozen=True)
class Theme:
    """Colours that keep their contrast on their background, and the size of a chart."""

    text: str
    grid: str
    first: str
    second: str
    third: str
    faint: str
    width: int = 400
    height: int = 215


THEMES: Mapping[str, Theme] = {
    "light": Theme("#565e68", "#e4e5e3", "#2456c4", "#b4580a", "#1f7a48", "#a9b0b7"),
    "dark": Theme("#a0a9b3", "#2b3137", "#8ab0ff", "#f0b35a", "#6fcf97", "#59626b"),
    "report": Theme("#888", "#8883", "#3b6fb6", "#d9822b", "#3a8f5b", "#999", 520, 250),
}
_LINES = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b")
METRICS = {"loss": "loss", "accuracy": "accuracy", "f1_macro": "macro-F1", "f1": "F1"}
_LONG = 32  # characters of a name on an axis
_LINE: Mapping[str, Any] = {"point": {"size": 28, "filled": True}, "strokeWidth": 2}


_DASHES = {THIS_MODEL: [1, 0], BASELINES["no_weak"]: [7, 4], BASELINES["trusted_only"]: [2, 3]}


def metric_svg(
    frame: pd.DataFrame, metric: str, target: float | None, theme: str, along: str = "round", **properties: Any
) -> str:
    """A metric by split and model; columns value, split, model and that of the x axis.

    Lines of the baselines are dashed; the target is a dashed line with its name.
    """
    colours = THEMES[theme]
    shown = list(dict.fromkeys(frame["split"]))
    palette = {"validation": colours.first, "test": colours.second, "steering": colours.faint}
    values = [*frame["value"], *([] if target is None else [target])]
    x, y = _counted(frame, along), alt.Y("value:Q", title=METRICS[metric], scale=_scale(values))
    color, own = _colour("split", {split: palette[split] for split in shown}), frame["model"] == THIS_MODEL
    lines = alt.Chart(frame[own]).mark_line(**_LINE).encode(x=x, y=y, color=color)
    if not own.all():
        names = [name for name in _DASHES if name in set(frame["model"])]
        scale = alt.Scale(domain=names, range=[_DASHES[name] for name in names])
        legend = alt.Legend(
            orient="bottom",
            symbolType="stroke",
            symbolStrokeColor=colours.text,
            symbolFillColor="transparent",
            symbolSize=400,
            symbolStrokeWidth=2,
        )
        dash = alt.StrokeDash("model:N", title=None, scale=scale, legend=legend)
        others = alt.Chart(frame[~own]).mark_line(strokeWidth=1.5)
        lines = alt.layer(others.encode(x=x, y=y, color=color, strokeDash=dash), lines.encode(strokeDash=dash))
    if target is None:
        return _drawn(lines, theme, **properties)
    goal = alt.Chart(pd.DataFrame({"value": [target], "word": [f"target {target:g}"], along: [frame[along].min()]}))
    rule = goal.mark_rule(strokeDash=[6, 4], color=colours.third, strokeWidth=1.5).encode(y="value:Q")
    word = goal.mark_text(align="left", dy=-7, dx=4, color=colours.third, fontSize=12)
    return _drawn(alt.layer(lines, rule, word.encode(x=f"{along}:Q", y="value:Q", text="word:N")), theme, **properties)


def audit_svg(frame: pd.DataFrame, theme: str, **properties: Any) -> str:
    """Accuracy of the audit as items come in, with its interval; columns items, accuracy, low, high."""
    colours = THEMES[theme]
    x = _counted(frame.assign(**{"audited items": frame["items"]}), "audited items")
    base = alt.Chart(frame.rename(columns={"items": "audited items"}))
    scale = alt.Scale(domain=[0, 1])
    band = base.mark_area(color=colours.first, opacity=0.18)
    band = band.encode(x=x, y=alt.Y("low:Q", title="accuracy", scale=scale), y2="high:Q")
    line = base.mark_line(**_LINE, color=colours.first).encode(
        x=x, y=alt.Y("accuracy:Q", title="accuracy", scale=scale)
    )
    return _drawn(alt.layer(band, line), theme, **properties)


def sources_svg(frame: pd.DataFrame, theme: str, **properties: Any) -> str:
    """Measured accuracy of sources with its interval; columns name, accuracy_low, accuracy_high, accuracy, use."""
    colours = THEMES[theme]
    palette = {"as it votes": colours.third, "turned": colours.second, "muted": colours.faint}
    palette |= {"counted": colours.first, "not used": colours.faint}
    named = frame.assign(source=[name if len(name) <= _LONG else f"{name[:_LONG]}…" for name in frame["name"]])
    order = named.sort_values("accuracy", ascending=False)["source"].tolist()
    x = alt.X(
        "accuracy_low:Q",
        title="share of right votes, measured; bar: 95 % interval",
        scale=alt.Scale(domain=[0, 1]),
    )
    y = alt.Y("source:N", title=None, sort=order, axis=alt.Axis(grid=False, labelLimit=220))
    color = _colour("use", {use: palette[use] for use in palette if use in set(frame["use"])})
    bars = (
        alt.Chart(named)
        .mark_bar(height=5, opacity=0.45, cornerRadius=2)
        .encode(x=x, x2="accuracy_high:Q", y=y, color=color)
    )
    dots = alt.Chart(named.dropna(subset=["accuracy"])).mark_point(filled=True, size=60, opacity=1)
    dots = dots.encode(x=alt.X("accuracy:Q"), y=y, color=color)
    room = {"left": 24, "right": 8, "top": 4, "bottom": 4}  # a browser's letters may be wider than those measured here
    return _drawn(alt.layer(bars, dots), theme, height=22 * len(frame), padding=room, **properties)


def change_svg(frame: pd.DataFrame, theme: str, **properties: Any) -> str:
    """Predicted beside realised change of the loss that steers; columns round, change, kind."""
    colours = THEMES[theme]
    chart = alt.Chart(frame).mark_line(**_LINE)
    chart = chart.encode(
        x=_counted(frame, "round"),
        y=alt.Y("change:Q", title="change of the steering loss", scale=_scale([*frame["change"], 0.0])),
        color=_colour("kind", {"predicted": colours.second, "realised": colours.first}),
    )
    zero = alt.Chart(pd.DataFrame({"change": [0.0]})).mark_rule(color=colours.faint).encode(y="change:Q")
    return _drawn(alt.layer(zero, chart), theme, **properties)


def curves_svg(frame: pd.DataFrame, metric: str, theme: str) -> str:
    """A metric per label, a line a selector; columns selector, labels, value. The campaign's own order is dashed."""
    names = list(dict.fromkeys(frame["selector"]))
    others = [name for name in names if name != AS_ASKED]
    colours = {name: _LINES[k % len(_LINES)] for k, name in enumerate(others)} | {AS_ASKED: THEMES[theme].text}
    shared = {
        "x": alt.X("labels:Q", title="labels", axis=alt.Axis(format="d", grid=False)),
        "y": alt.Y("value:Q", title=METRICS[metric], scale=_scale([*frame["value"]])),
        "color": _colour("selector", {name: colours[name] for name in names}),
    }
    mine = frame["selector"] == AS_ASKED
    lines = alt.Chart(frame[~mine]).mark_line(**_LINE).encode(**shared)
    own = alt.Chart(frame[mine]).mark_line(strokeDash=[5, 4], strokeWidth=2).encode(**shared)  # on top: it may coincide
    return _drawn(alt.layer(lines, own), theme, width=620, height=300)


def seconds_svg(frame: pd.DataFrame, theme: str) -> str:
    """Median seconds an item, a round; columns round, seconds."""
    y = alt.Y("seconds:Q", title="seconds an item (median)", scale=alt.Scale(zero=True))
    chart = alt.Chart(frame).mark_line(**_LINE, color=THEMES[theme].first)
    return _drawn(chart.encode(x=_counted(frame, "round"), y=y), theme)


def agreement_svg(frame: pd.DataFrame, theme: str) -> str:
    """Shares of agreement as bars with their counts; columns what, share, votes."""
    place = np.arange(len(frame))
    columns = frame[["what", "share", "votes"]].to_numpy()
    word = [f"{what}: {100 * share:.0f} % of {votes}" for what, share, votes in columns]
    base = alt.Chart(frame.assign(low=place + 0.42, high=place + 0.74, word=word))
    x = alt.X("share:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("low:Q", axis=None, scale=alt.Scale(domain=[0, len(frame)], reverse=True, nice=False))
    bars = base.mark_rect(color=THEMES[theme].first, cornerRadius=2).encode(x=x, x2=alt.datum(0), y=y, y2="high:Q")
    words = base.mark_text(align="left", baseline="bottom", color=THEMES[theme].text, fontSize=13, dy=-4)
    return _drawn(alt.layer(bars, words.encode(x=alt.value(0), y=y, text="word:N")), theme, height=52 * len(frame))


def map_svg(frame: pd.DataFrame, theme: str) -> str:
    """The items in two dimensions; columns x, y, what ('weak', 'validation', 'cleaned', 'selected')."""
    colours = THEMES[theme]
    kinds = {"weak": colours.faint, "validation": colours.first, "cleaned": colours.third, "selected": colours.second}
    drawn = frame.assign(order=frame["what"].map(list(kinds).index), x=frame["x"].round(2), y=frame["y"].round(2))

    def place(axis: Any, column: str) -> Any:
        no_axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
        return axis(f"{column}:Q", title=None, axis=no_axis, scale=alt.Scale(zero=False))

    def by_order(channel: Any, values: list[float]) -> Any:
        return channel("order:O", scale=alt.Scale(domain=[0, 1, 2, 3], range=values), legend=None)

    chart = alt.Chart(drawn.sort_values("order")).mark_point(filled=True)
    chart = chart.encode(
        x=place(alt.X, "x"),
        y=place(alt.Y, "y"),
        color=_colour("what", kinds),
        size=by_order(alt.Size, [12, 30, 60, 90]),
        opacity=by_order(alt.Opacity, [0.55, 0.75, 0.9, 1.0]),
    )
    return _drawn(chart, theme, width=860, height=420)


def influence_svg(influence: Float64s, selected: Float64s) -> str:
    """Distribution of the influence at the start, over all weak samples, with what was selected first marked."""
    colours = THEMES["report"]
    counts, edges = np.histogram(influence[np.isfinite(influence)], bins=60)
    bars = pd.DataFrame({"low": edges[:-1], "high": edges[1:], "samples": counts, "floor": 0})[counts > 0]
    chart = alt.Chart(bars).mark_bar(color=colours.first)
    chart = chart.encode(
        x=alt.X("low:Q", title="N × predicted change of the steering loss (negative helps)"),
        x2="high:Q",
        y=alt.Y("samples:Q", title="samples", scale=alt.Scale(type="symlog", constant=5)),
        y2="floor:Q",
    )
    ticks = alt.Chart(pd.DataFrame({"influence": selected}))
    ticks = ticks.mark_tick(color=colours.second, thickness=2, size=colours.height / 8)
    ticks = ticks.encode(x="influence:Q", y=alt.value(colours.height * 15 / 16))
    return _drawn(alt.layer(chart, ticks), "report", title="Influence of each weak label at the start")


def truth_svg(frame: pd.DataFrame) -> str:
    """Share of the suggestions, weak labels and decisions that equal the truth; columns round, share, what."""
    colours = THEMES["report"]
    chart = alt.Chart(frame).mark_line(**_LINE)
    chart = chart.encode(
        x=_counted(frame, "round"),
        y=alt.Y("share:Q", title="share", axis=alt.Axis(format="%")),
        color=_colour("what", {"decided": colours.third, "suggested": colours.first, "weak": colours.faint}),
    )
    return _drawn(chart, "report", title="Agreement with the true label, of the samples asked so far")


def candidates_svg(frame: pd.DataFrame) -> str:
    """The share of all samples that a round evaluated exactly; columns round, share, how."""
    y = alt.Y("share:Q", title="share of the training set", axis=alt.Axis(format="%"))
    color = alt.Color("how:N", title=None, scale=alt.Scale(range=[THEMES["report"].faint, THEMES["report"].first]))
    return _bars(frame, y, color, "Samples evaluated exactly to find the batch")


def phases_svg(frame: pd.DataFrame) -> str:
    """Time of each phase of a round; columns round, ms, phase, in the order of the phases."""
    order = list(dict.fromkeys(frame["phase"]))
    color = alt.Color("phase:N", title=None, sort=order, scale=alt.Scale(scheme="tableau10"))
    return _bars(frame, alt.Y("ms:Q", title="milliseconds"), color, "Time a round")


def distance_svg(frame: pd.DataFrame) -> str:
    """How far each round's model can be from the optimum, at most; columns round, distance."""
    y = alt.Y("distance:Q", title="‖∇F‖ / l2", scale=alt.Scale(type="log"), axis=alt.Axis(format=".0e"))
    chart = alt.Chart(frame).mark_line(**_LINE, color=THEMES["report"].first)
    title = "Distance of the model to the optimum, at most"
    return _drawn(chart.encode(x=_counted(frame, "round"), y=y), "report", title=title)


def as_svg(chart: Any) -> str:
    """The chart as an SVG element."""
    return str(vl_convert.vegalite_to_svg(chart.to_json(validate=False)))


def _bars(frame: pd.DataFrame, y: alt.Y, color: alt.Color, title: str) -> str:
    x = alt.X("round:O", title="round", axis=alt.Axis(labelOverlap=True))
    return _drawn(alt.Chart(frame).mark_bar().encode(x=x, y=y, color=color), "report", title=title)


def _counted(frame: pd.DataFrame, column: str) -> alt.X:
    """An axis of whole numbers, with about ten ticks."""
    low, high = int(frame[column].min()), int(frame[column].max())
    ticks = list(range(low, high + 1, max(1, (high - low) // 10)))
    domain = alt.Scale(domain=[low, max(high, low + 1)], nice=False)
    return alt.X(f"{column}:Q", title=column, scale=domain, axis=alt.Axis(values=ticks, format="d", grid=False))


def _scale(values: list[float]) -> alt.Scale:
    """A scale over all values; with some room where they are all the same."""
    low, high = min(values), max(values)
    room = 0.0 if high > low else max(0.01, 0.05 * abs(high))
    return alt.Scale(zero=False, nice=True, domain=[low - room, high + room])


def _colour(column: str, colours: Mapping[str, str]) -> alt.Color:
    return alt.Color(f"{column}:N", title=None, scale=alt.Scale(domain=list(colours), range=list(colours.values())))


def _drawn(chart: Any, theme: str, **properties: Any) -> str:
    colours = THEMES[theme]
    text = {"labelColor": colours.text, "labelFontSize": 13}
    lines = {"gridColor": colours.grid, "domainColor": colours.faint, "tickColor": colours.faint}
    titles = {"titleColor": colours.text, "titleFontSize": 13, "titleFontWeight": 500, "titlePadding": 10}
    sizes = {"width": colours.width, "height": colours.height, "padding": 4, **properties}
    sized = chart.properties(background="transparent", **sizes).configure(
        font="system-ui, sans-serif",
        view={"stroke": None},
        title={"anchor": "start", "fontSize": 14, "color": colours.text},
        axis={**text, **lines, **titles},
        axisLeft={"minExtent": 42},
        legend={**text, "orient": "top", "symbolOpacity": 1, "columnPadding": 28},
    )
    return as_svg(sized)
