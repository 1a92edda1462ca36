"""The report's charts and page."""

import re

import numpy as np
import pandas as pd

from labelchef import LabelCleaner
from labelchef.chef.choice import make_selector
from labelchef.judge.report import ReportData, render_report
from labelchef.judge.report.page import agreement_by_round


def history(look_ahead: bool = False) -> tuple[pd.DataFrame, int]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 3200)
    X = rng.normal(size=(3200, 4)) + y[:, None]
    cleaner = LabelCleaner(
        selector=make_selector("increm_infl", look_ahead=look_ahead),
        gamma=0.8,
        l2=0.01,
        budget=50,
        target=0.9,
        target_metric="accuracy",
    )
    cleaner.fit(X[:3000], rng.dirichlet([1, 1], 3000), X_val=X[3000:], y_val=y[3000:])
    return cleaner.run(lambda batch: y[batch.indices]).history, 3000


def data(**changes: object) -> ReportData:
    frame, n = history()
    given = {
        "title": "<b>bold</b> & co",
        "message": "Stopped.",
        "history": frame,
        "settings": {"l2": 0.01, "name": "<script>alert(1)</script>"},
        "influence": np.append(-np.arange(n - 1.0), np.nan),
        "first_selected": np.array([-3.0, -2.0]),
        "asked": pd.DataFrame({"round": [1], "item": [7], "suggested": ["<i>x</i>"], "decided": ["y"], "weak": ["y"]}),
        **changes,
    }
    return ReportData(**given)  # type: ignore[arg-type]


def test_names_are_shown_as_text_and_nothing_is_fetched() -> None:
    page = render_report(data())
    assert "<b>bold" not in page
    assert "<script" not in page
    assert "<i>x" not in page
    assert "&lt;i&gt;x" in page
    assert not re.findall(r"(?:src|href)=", page.replace("xlink:href", ""))
    assert "default-src 'none'" in page


def test_what_was_evaluated_is_charted_where_there_was_something_to_prune() -> None:
    one = data()
    assert "Samples evaluated exactly" in render_report(one)
    whole = one.history.assign(fell_back=True)
    assert "Samples evaluated exactly" not in render_report(data(history=whole))


def test_a_campaign_that_asked_nobody_has_a_report() -> None:
    frame, _ = history()
    page = render_report(data(history=frame.head(1), asked=pd.DataFrame(), first_selected=np.empty(0)))
    assert page.count("<svg") == 1


def test_the_target_line_is_drawn() -> None:
    with_line = render_report(data(target_metric="accuracy", target=0.9))
    assert with_line.count("stroke-dasharray") > render_report(data(target_metric="accuracy")).count("stroke-dasharray")


def test_agreement_is_a_running_share() -> None:
    asked = pd.DataFrame(
        {
            "round": [1, 1, 2, 2],
            "truth": ["a", "b", "a", None],
            "suggested": ["a", "a", "a", "a"],
            "decided": ["a", "b", "b", "a"],
            "weak": ["b", "a", "b", "a"],
        }
    )
    shares = agreement_by_round(asked).set_index(["what", "round"])["share"]
    assert shares["suggested", 1] == 0.5
    assert shares["suggested", 2] == 2 / 3
    assert shares["decided", 2] == 2 / 3
    assert shares["weak", 2] == 0.0
