"""The demo in docs/measurements.md: `python -m experiments.readme_picture` writes docs/demo.svg and prints the table.

Compared on the demo's digits, by test macro-F1 after 0, 50, 100 and 200 labels, seeds 0 to 9:

- labelchef: `labelchef demo`, three simulated people with 5 % errors;
- trusted only: scikit-learn's LogisticRegression on the trusted samples alone, C by cross-validation;
- margin: the same on trusted and asked samples, without weak labels. In rounds of ten it asks the samples whose two most
  probable classes are closest. The answers are always right, which is in its favour. C is chosen anew when the samples have
  grown by half.

The picture shows the means over the seeds.
"""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import f1_score

from experiments.reporting import DOCS
from labelchef.base.arrays import Floats, Ints
from labelchef.data.files.digits import DigitsData, load_digits_demo
from labelchef.judge.report.charts import as_svg
from labelchef.server.demo import demo

SEEDS = tuple(range(10))
AT = (0, 50, 100, 200)
ROUND, GROWTH = 10, 1.5
OURS, MARGIN, TRUSTED = "labelchef", "LogisticRegression, trusted + asked", "LogisticRegression, trusted only"
COLOURS = {OURS: "#3b82d6", MARGIN: "#8a8f98", TRUSTED: "#d9722b"}
INK = "#7a7a7a"
"""Colours that can be read on a light and on a dark page."""


def demo_curve(seed: int) -> pd.Series:
    """Test macro-F1 of the demo's campaign by labels asked."""
    with tempfile.TemporaryDirectory() as folder:
        demo(Path(folder), seed=seed, report=False)
        history = pd.read_csv(Path(folder) / "history.csv")
    return history.groupby("spent")["test_f1_macro"].last()


def chosen_model(X: Floats, y: Ints) -> LogisticRegressionCV:
    """LogisticRegression with C by cross-validation: five folds, or fewer where a class has fewer samples."""
    folds = int(np.clip(np.bincount(y)[np.unique(y)].min(), 2, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parameters that are about to be renamed
        return LogisticRegressionCV(Cs=11, max_iter=1000, cv=folds, scoring="neg_log_loss").fit(X, y)


def smallest_margins(P: Floats, b: int) -> Ints:
    """The b rows of P (n, C) whose two largest entries are closest.

    >>> smallest_margins(np.array([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.4, 0.3, 0.3]]), 2).tolist()
    [1, 2]
    """
    ordered = np.sort(P, axis=1)
    return np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")[:b]


def margin_curve(data: DigitsData, labels: int) -> pd.Series:
    """Test macro-F1 by labels asked; with none, that of the trusted samples alone."""
    X, y, left = data.X_val, data.y_val, np.arange(len(data.X))
    model: Any = chosen_model(X, y)
    C, n_chosen, found = model.C_[0], len(y), {0: _f1(model, data)}
    while len(y) < len(data.y_val) + labels:
        asked = left[smallest_margins(model.predict_proba(data.X[left]), ROUND)]
        left = np.setdiff1d(left, asked)
        X, y = np.concatenate([X, data.X[asked]]), np.concatenate([y, data.y[asked]])
        if len(y) >= GROWTH * n_chosen:
            model = chosen_model(X, y)
            C, n_chosen = model.C_[0], len(y)
        else:
            model = LogisticRegression(C=C, max_iter=1000).fit(X, y)
        found[len(y) - len(data.y_val)] = _f1(model, data)
    return pd.Series(found)


def _f1(model: Any, data: DigitsData) -> float:
    return float(f1_score(data.y_test, model.predict(data.X_test), average="macro"))


def curves(seeds: Sequence[int]) -> pd.DataFrame:
    """Columns seed, method, asked, f1."""
    parts = []
    for seed in seeds:
        margin = margin_curve(load_digits_demo(seed), max(AT))
        found = {OURS: demo_curve(seed), MARGIN: margin, TRUSTED: pd.Series(margin[0], index=margin.index)}
        for method, curve in found.items():
            rows = {"seed": seed, "method": method, "asked": curve.index, "f1": curve.to_numpy()}
            parts.append(pd.DataFrame(rows))
    return pd.concat(parts, ignore_index=True)


def table(frame: pd.DataFrame) -> str:
    """In Markdown: a row a method, its mean at `AT`, and in how many seeds labelchef is ahead of it.

    >>> rows = [{"seed": 0, "method": m, "asked": k, "f1": v} for m, v in ((OURS, 0.9), (MARGIN, 0.8)) for k in AT]
    >>> print(table(pd.DataFrame(rows)).splitlines()[-1])
    | LogisticRegression, trusted + asked | 0.800 (1) | 0.800 (1) | 0.800 (1) | 0.800 (1) |
    """
    wide = frame.pivot_table(index="seed", columns=["method", "asked"], values="f1")
    lines = [f"| | {' | '.join(f'{k} labels' for k in AT)} |", f"|---|{'---|' * len(AT)}"]
    for method in [name for name in COLOURS if name in set(frame["method"])]:
        cells = []
        for k in AT:
            ahead = int((wide[OURS][k] > wide[method][k]).sum())
            cells.append(f"{wide[method][k].mean():.3f}" + ("" if method == OURS else f" ({ahead})"))
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(frame: pd.DataFrame) -> Any:
    """The chart of the means, with a text beside each line in place of a legend."""
    import altair as alt

    means = frame.groupby(["method", "asked"], as_index=False)["f1"].mean()
    x = alt.X("asked:Q", title="labels asked")
    y = alt.Y("f1:Q", title="macro-F1 on the test images", scale=alt.Scale(domain=[0.86, 1.0]))
    layers = []
    for method, dy in ((TRUSTED, -9), (MARGIN, 36), (OURS, -12)):
        own = means[means["method"] == method]
        dash = [6, 4] if method == TRUSTED else [1, 0]
        line = alt.Chart(own).mark_line(color=COLOURS[method], strokeWidth=2.5, strokeDash=dash)
        end = own[own["asked"] == max(AT)].assign(text=f"{method}: {own['f1'].iloc[-1]:.3f}")
        text = alt.Chart(end).mark_text(align="right", dy=dy, fontSize=12, color=COLOURS[method])
        layers += [line.encode(x=x, y=y), text.encode(x=x, y=y, text="text")]
    return (
        alt.layer(*layers)
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
    """Write the picture and print the table."""
    frame = curves(SEEDS)
    (DOCS / "demo.svg").write_text(as_svg(picture(frame)) + "\n")
    print(table(frame))
    at = frame[frame["asked"].isin(AT)]
    print(at.pivot_table(index="seed", columns=["method", "asked"], values="f1").round(3).to_string())


if __name__ == "__main__":
    main()
