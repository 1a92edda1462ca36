"""Charts of the reports, as Vega-Lite specifications."""

from typing import Any

import pandas as pd

WIDTH, HEIGHT = 520, 300


def curves(frame: pd.DataFrame, *, title: str, x: str, y: str, log_x: bool = False, share: bool = False) -> Any:
    """Lines over columns x, y, method."""
    import altair as alt

    scale = alt.Scale(type="log") if log_x else alt.Scale()
    axis = alt.Axis(format="%") if share else alt.Axis()
    chart = (
        alt.Chart(frame, title=title)
        .mark_line(strokeWidth=1.6)
        .encode(
            x=alt.X("x:Q", title=x, scale=scale),
            y=alt.Y("y:Q", title=y, scale=alt.Scale(zero=False), axis=axis),
            color=alt.Color("method:N", title=None, scale=alt.Scale(scheme="tableau20")),
        )
    )
    return _sized(chart, HEIGHT)


def budget_curves(frame: pd.DataFrame, *, title: str, ceiling: float | None) -> Any:
    """Lines over columns x, y, method, one for each size (trusted samples they begin with); a dashed line for the ceiling."""
    import altair as alt

    lines = (
        alt.Chart(frame, title=title)
        .mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("x:Q", title="trusted and asked labels", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("y:Q", title="test macro-F1", scale=alt.Scale(zero=False)),
            color=alt.Color("method:N", title=None, scale=alt.Scale(scheme="tableau10")),
            detail="size:N",
        )
    )
    if ceiling is None:
        return _sized(lines, HEIGHT)
    top = (
        alt.Chart(pd.DataFrame({"y": [ceiling]}))
        .mark_rule(strokeDash=[4, 4], color="#888")
        .encode(y=alt.Y("y:Q", title="test macro-F1"))
    )
    return _sized(alt.layer(lines, top), HEIGHT)


def dots(frame: pd.DataFrame, *, title: str, x: str) -> Any:
    """A dot with its interval for each method: columns method, mean, half; the best on top."""
    import altair as alt

    frame = frame.assign(low=frame["mean"] - frame["half"], high=frame["mean"] + frame["half"])
    order = frame.sort_values("mean", ascending=False)["method"].tolist()
    y = alt.Y("method:N", sort=order, title=None)
    base = alt.Chart(frame, title=title)
    bars = base.mark_rule(color="#888").encode(y=y, x=alt.X("low:Q", title=x), x2="high:Q")
    points = base.mark_circle(color="#3b6fb6", size=50, opacity=1).encode(y=y, x=alt.X("mean:Q", title=x))
    zero = alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(strokeDash=[4, 4], color="#aaa").encode(x="zero:Q")
    return _sized(alt.layer(zero, bars, points), 18 * len(frame))


def seconds(frame: pd.DataFrame, *, title: str) -> Any:
    """Times on a logarithmic scale: columns data, method, seconds."""
    import altair as alt

    chart = (
        alt.Chart(frame, title=title)
        .mark_circle(size=70, opacity=1)
        .encode(
            y=alt.Y("data:N", title=None, sort=None),
            x=alt.X("seconds:Q", title="seconds", scale=alt.Scale(type="log")),
            color=alt.Color("method:N", title=None, scale=alt.Scale(scheme="tableau10")),
        )
    )
    return _sized(chart, 200)


def map_of(points: pd.DataFrame, *, title: str) -> Any:
    """The t-SNE figure: columns x, y, kind, truth."""
    import altair as alt

    picked = ~points["kind"].isin(["training", "validation"])
    where = {"x": alt.X("x:Q", title=None, axis=None), "y": alt.Y("y:Q", title=None, axis=None)}
    truth = alt.Color("truth:N", title="true class", scale=alt.Scale(scheme="tableau10"))
    ground = (
        alt.Chart(points[~picked], title=title)
        .mark_point(filled=True, opacity=0.45)
        .encode(
            **where,
            color=truth,
            size=alt.Size("kind:N", title=None, scale=alt.Scale(domain=["training", "validation"], range=[8, 30])),
        )
    )
    marks = (
        alt.Chart(points[picked])
        .mark_point(size=110, strokeWidth=2, color="black")
        .encode(
            **where,
            shape=alt.Shape("kind:N", title="asked first by", scale=alt.Scale(range=["cross", "triangle", "square"])),
        )
    )
    return _sized(alt.layer(ground, marks), 380)


def _sized(chart: Any, height: int) -> Any:
    padding = {
        "left": 24,
        "right": 8,
        "top": 6,
        "bottom": 6,
    }  # the reader's font may be wider than the one measured with
    return chart.properties(width=WIDTH, height=height, background="white", padding=padding).configure(
        aria=False,  # a label for each point would be most of the file
        font="system-ui, sans-serif",
        view={"stroke": None},
        axis={"gridColor": "#eee", "domainColor": "#888", "tickColor": "#888", "labelColor": "#444", "labelLimit": 260},
        title={"anchor": "start", "fontSize": 13},
        legend={"labelColor": "#444", "labelLimit": 260},
    )
