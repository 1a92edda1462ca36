"""Charts of a campaign that runs, for the page: light and dark, drawn to SVG."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from labelchef.domain.comparisons import AS_ASKED
from labelchef.report.charts import as_svg


@dataclass(frozen=True)
class Palette:
    """Colours of a chart: they keep their contrast on the page's card."""

    text: str
    grid: str
    first: str
    second: str
    third: str
    faint: str


PALETTES: Mapping[str, Palette] = {
    "light": Palette("#565e68", "#e4e5e3", "#2456c4", "#b4580a", "#1f7a48", "#a9b0b7"),
    "dark": Palette("#a0a9b3", "#2b3137", "#8ab0ff", "#f0b35a", "#6fcf97", "#59626b"),
}
_LINES = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b")
WIDTH, HEIGHT = 400, 215
_METRICS = {"loss": "loss", "accuracy": "accuracy", "f1_macro": "macro-F1", "f1": "F1"}


def metric_svg(frame: pd.DataFrame, metric: str, target: float | None, theme: str) -> str:
    """A metric per round; columns round, value, split. The target is a dashed line with its name."""
    import altair as alt

    colours = PALETTES[theme]
    name = _METRICS.get(metric, metric)
    shown = list(dict.fromkeys(frame["split"]))
    palette = {"validation": colours.first, "test": colours.second, "steering": colours.faint}
    lines = (
        alt.Chart(frame)
        .mark_line(point={"size": 28, "filled": True}, strokeWidth=2)
        .encode(
            x=_rounds(frame),
            y=alt.Y("value:Q", title=name, scale=_scale([*frame["value"], *([] if target is None else [target])])),
            color=_colour("split", shown, [palette[split] for split in shown]),
        )
    )
    if target is None:
        return _drawn(lines, theme)
    goal = pd.DataFrame({"value": [target], "word": [f"target {target:g}"], "round": [frame["round"].min()]})
    rule = alt.Chart(goal).mark_rule(strokeDash=[6, 4], color=colours.third, strokeWidth=1.5).encode(y="value:Q")
    word = (
        alt.Chart(goal)
        .mark_text(align="left", dy=-7, dx=4, color=colours.third, fontSize=12)
        .encode(x="round:Q", y="value:Q", text="word:N")
    )
    return _drawn(alt.layer(lines, rule, word), theme)


def curves_svg(frame: pd.DataFrame, metric: str, theme: str) -> str:
    """A metric per label, a line a selector; columns selector, labels, value. The campaign's own order is dashed."""
    import altair as alt

    names = list(dict.fromkeys(frame["selector"]))
    others = [name for name in names if name != AS_ASKED]
    colours = {name: _LINES[k % len(_LINES)] for k, name in enumerate(others)} | {AS_ASKED: PALETTES[theme].text}
    shared = {
        "x": alt.X("labels:Q", title="labels", axis=alt.Axis(format="d", grid=False)),
        "y": alt.Y("value:Q", title=_METRICS.get(metric, metric), scale=_scale([*frame["value"]])),
        "color": _colour("selector", names, [colours[name] for name in names]),
    }
    mine = frame["selector"] == AS_ASKED
    lines = alt.Chart(frame[~mine]).mark_line(point={"size": 20, "filled": True}, strokeWidth=2).encode(**shared)
    own = alt.Chart(frame[mine]).mark_line(strokeDash=[5, 4], strokeWidth=2).encode(**shared)  # on top: it may coincide
    return _drawn(alt.layer(lines, own), theme, width=620, height=300)


def change_svg(frame: pd.DataFrame, theme: str) -> str:
    """Predicted beside realised change of the loss that steers; columns round, change, kind."""
    import altair as alt

    colours = PALETTES[theme]
    chart = (
        alt.Chart(frame)
        .mark_line(point={"size": 28, "filled": True}, strokeWidth=2)
        .encode(
            x=_rounds(frame),
            y=alt.Y("change:Q", title="change of the steering loss", scale=_scale([*frame["change"], 0.0])),
            color=_colour("kind", ["predicted", "realised"], [colours.second, colours.first]),
        )
    )
    zero = alt.Chart(pd.DataFrame({"change": [0.0]})).mark_rule(color=colours.faint).encode(y="change:Q")
    return _drawn(alt.layer(zero, chart), theme)


def seconds_svg(frame: pd.DataFrame, theme: str) -> str:
    """Median seconds an item, a round; columns round, seconds."""
    import altair as alt

    chart = (
        alt.Chart(frame)
        .mark_line(point={"size": 28, "filled": True}, color=PALETTES[theme].first, strokeWidth=2)
        .encode(x=_rounds(frame), y=alt.Y("seconds:Q", title="seconds an item (median)", scale=alt.Scale(zero=True)))
    )
    return _drawn(chart, theme)


def agreement_svg(frame: pd.DataFrame, theme: str) -> str:
    """Shares of agreement as bars with their counts; columns what, share, votes."""
    import altair as alt

    colours = PALETTES[theme]
    drawn = frame.assign(
        line=range(len(frame)),
        low=[k + 0.42 for k in range(len(frame))],
        high=[k + 0.74 for k in range(len(frame))],
        word=[
            f"{what}: {100 * share:.0f} % of {votes}"
            for what, share, votes in zip(frame["what"], frame["share"], frame["votes"], strict=True)
        ],
    )
    scale = alt.Scale(domain=[0, len(frame)], reverse=True, nice=False)
    x = alt.X("share:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=5))
    base = alt.Chart(drawn)
    bars = base.mark_rect(color=colours.first, cornerRadius=2).encode(
        x=x, x2=alt.datum(0), y=alt.Y("low:Q", axis=None, scale=scale), y2="high:Q"
    )
    words = base.mark_text(align="left", baseline="bottom", color=colours.text, fontSize=13, dy=-4).encode(
        x=alt.value(0), y=alt.Y("low:Q", axis=None, scale=scale), text="word:N"
    )
    return _drawn(alt.layer(bars, words), theme, height=52 * len(frame))


def map_svg(frame: pd.DataFrame, theme: str) -> str:
    """The items in two dimensions; columns x, y, what ('weak', 'validation', 'cleaned', 'selected')."""
    import altair as alt

    colours = PALETTES[theme]
    kinds = ["weak", "validation", "cleaned", "selected"]
    drawn = frame.assign(order=frame["what"].map(kinds.index), x=frame["x"].round(2), y=frame["y"].round(2))
    no_axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    chart = (
        alt.Chart(drawn.sort_values("order"))
        .mark_point(filled=True)
        .encode(
            x=alt.X("x:Q", title=None, axis=no_axis, scale=alt.Scale(zero=False)),
            y=alt.Y("y:Q", title=None, axis=no_axis, scale=alt.Scale(zero=False)),
            color=_colour("what", kinds, [colours.faint, colours.first, colours.third, colours.second]),
            size=alt.Size("order:O", scale=alt.Scale(domain=[0, 1, 2, 3], range=[12, 30, 60, 90]), legend=None),
            opacity=alt.Opacity(
                "order:O", scale=alt.Scale(domain=[0, 1, 2, 3], range=[0.55, 0.75, 0.9, 1.0]), legend=None
            ),
        )
    )
    return _drawn(chart, theme, width=860, height=420)


def _rounds(frame: pd.DataFrame) -> Any:
    import altair as alt

    low, high = int(frame["round"].min()), int(frame["round"].max())
    ticks = list(range(low, high + 1, max(1, (high - low) // 10)))
    domain = alt.Scale(domain=[low, max(high, low + 1)], nice=False)
    return alt.X("round:Q", title="round", scale=domain, axis=alt.Axis(values=ticks, format="d", grid=False))


def _scale(values: list[float]) -> Any:
    """A scale over all values; with some room where they are all the same."""
    import altair as alt

    low, high = min(values), max(values)
    room = 0.0 if high > low else max(0.01, 0.05 * abs(high))
    return alt.Scale(zero=False, nice=True, domain=[low - room, high + room])


def _colour(column: str, names: list[str], colours: list[str]) -> Any:
    import altair as alt

    return alt.Color(f"{column}:N", title=None, scale=alt.Scale(domain=names, range=colours))


def _drawn(chart: Any, theme: str, *, width: int = WIDTH, height: int = HEIGHT) -> str:
    colours = PALETTES[theme]
    sized = chart.properties(width=width, height=height, background="transparent", padding=4).configure(
        font="system-ui, sans-serif",
        view={"stroke": None},
        axis={
            "gridColor": colours.grid,
            "domainColor": colours.faint,
            "tickColor": colours.faint,
            "labelColor": colours.text,
            "titleColor": colours.text,
            "labelFontSize": 13,
            "titleFontSize": 13,
            "titleFontWeight": 500,
            "titlePadding": 10,
        },
        axisLeft={"minExtent": 42},
        legend={
            "orient": "top",
            "labelColor": colours.text,
            "labelFontSize": 13,
            "symbolOpacity": 1,
            "columnPadding": 28,
        },
    )
    return as_svg(sized)
