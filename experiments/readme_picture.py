"""The picture and the baseline of the README: `python -m experiments.readme_picture` runs the demo and writes docs/demo.svg.

The picture shows test macro-F1 against the labels asked (seed 0), with a baseline: scikit-learn's LogisticRegression,
trained on the trusted samples alone. The command also prints the baseline's test macro-F1 on the demo, with default and with
cross-validated regularisation. On real sets it is a row of the scoreboard.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import f1_score

from experiments.reporting import DOCS
from labelchef.domain.arrays import Floats, Ints
from labelchef.io.digits import load_digits_demo
from labelchef.report.charts import as_svg
from labelchef.services.demo import demo

INK, CURVE, BASELINE = "#7a7a7a", "#3b82d6", "#d9722b"
"""Colours that can be read on a light and on a dark page."""


def demo_curve(seed: int) -> pd.DataFrame:
    """The demo's campaign: columns `asked` (labels asked so far) and `f1` (test macro-F1)."""
    with tempfile.TemporaryDirectory() as folder:
        demo(Path(folder), seed=seed, report=False)
        history = pd.read_csv(Path(folder) / "history.csv")
    return pd.DataFrame({"asked": history["spent"], "f1": history["test_f1_macro"]})


def trusted_only(X_val: Floats, y_val: Ints, X_test: Floats, y_test: Ints) -> tuple[float, float]:
    """Test macro-F1 of LogisticRegression on the trusted samples: with the default C, and with C by cross-validation.

    >>> import numpy as np
    >>> X, y = np.repeat([[-1.0], [1.0]], 10, axis=0), np.repeat([0, 1], 10)
    >>> trusted_only(X, y, X, y), trusted_only(X, y, X, 1 - y)
    ((1.0, 1.0), (0.0, 0.0))
    """
    models = LogisticRegression(max_iter=5000), LogisticRegressionCV(max_iter=5000, cv=5, scoring="neg_log_loss")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        default, chosen = (
            float(f1_score(y_test, model.fit(X_val, y_val).predict(X_test), average="macro")) for model in models
        )
    return default, chosen


def on_demo(seed: int) -> tuple[float, float]:
    """The baseline on the demo's digits."""
    d = load_digits_demo(seed)
    return trusted_only(d.X_val, d.y_val, d.X_test, d.y_test)


def picture(curve: pd.DataFrame, baseline: float) -> Any:
    """The chart, with a text beside each line in place of a legend."""
    import altair as alt

    asked, f1 = float(curve["asked"].iloc[-1]), float(curve["f1"].iloc[-1])
    lines = pd.DataFrame(
        {
            "asked": [asked, asked],
            "f1": [baseline, f1],
            "text": [
                f"scikit-learn's LogisticRegression on the trusted samples alone: {baseline:.3f}",
                f"labelchef after {asked:.0f} labels: {f1:.3f}",
            ],
        }
    )
    x = alt.X("asked:Q", title="labels asked")
    y = alt.Y("f1:Q", title="macro-F1 on the test samples", scale=alt.Scale(domain=[0.6, 1.0]))
    rule = alt.Chart(lines[:1]).mark_rule(color=BASELINE, strokeDash=[6, 4], strokeWidth=2).encode(y=y)
    course = (
        alt.Chart(curve).mark_line(color=CURVE, strokeWidth=2.5, point={"size": 24, "color": CURVE}).encode(x=x, y=y)
    )
    texts = [
        alt.Chart(lines[row : row + 1])
        .mark_text(align="right", dy=dy, fontSize=12, color=color)
        .encode(x=x, y=y, text="text")
        for row, dy, color in ((0, -10, BASELINE), (1, 22, CURVE))
    ]
    return (
        alt.layer(rule, course, *texts)
        .properties(width=520, height=240, background="transparent", padding=10)
        .configure(
            aria=False,
            font="system-ui, sans-serif",
            view={"stroke": None},
            axis=dict.fromkeys(("domainColor", "tickColor", "labelColor", "titleColor"), INK)
            | {"gridColor": "#8883", "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
        )
    )


def main() -> None:
    """Write the picture and print the baseline's figures."""
    (DOCS / "demo.svg").write_text(as_svg(picture(demo_curve(0), on_demo(0)[0])) + "\n")
    for seed in range(3):
        print("demo, seed {}: default C {:.3f}, cross-validated C {:.3f}".format(seed, *on_demo(seed)))


if __name__ == "__main__":
    main()
