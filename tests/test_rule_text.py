"""Stopping rules as text."""

import pytest

from labelchef import LabelCleaner
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import Settings
from labelchef.loop.steps import Rules
from labelchef.loop.stopping import MaxRounds, NoPredictedGain, Plateau, TargetReached, parse_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("MaxRounds(3)", MaxRounds(3)),
        (" Plateau('loss', patience=2, min_delta=0.1) ", Plateau("loss", 2, 0.1)),
        ("MaxRounds(3) | NoPredictedGain() & TargetReached('accuracy', 0.9)",
         MaxRounds(3) | NoPredictedGain() & TargetReached("accuracy", 0.9)),
        ("(MaxRounds(3) | NoPredictedGain()) & TargetReached('loss', 1)",
         (MaxRounds(3) | NoPredictedGain()) & TargetReached("loss", 1)),
    ],
)  # fmt: skip
def test_a_text_is_the_rule_it_describes(text: str, rule: object) -> None:
    assert parse_rule(text) == rule
    assert Rules.of(Settings(stop=text)).stop == rule


@pytest.mark.parametrize(
    "text",
    [
        "soon", "", "MaxRounds", "MaxRounds(", "MaxRounds()", "MaxRounds(1, 2)", "MaxRounds('a')", "MaxRounds(0)",
        "MaxRounds(2.5)", "Plateau('auc')", "Plateau('loss', patience=0)", "TargetReached('loss', 'low')",
        "MaxRounds(3) + MaxRounds(4)", "not MaxRounds(3)",
        "MaxRounds(True)", "MaxRounds([1])", "__import__('os').system('x')", "MaxRounds(rounds=open('x'))", "lambda: 0",
        "MaxRounds(3) | 5", "MaxRounds(**{})", "(" * 500 + "MaxRounds(1)" + ")" * 500,
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="stop is") as refused:
        parse_rule(text)
    assert refused.value.code == "stop"


def test_a_cleaner_takes_the_text() -> None:
    assert LabelCleaner(stop="MaxRounds(3)")._rules().stop == MaxRounds(3)
    with pytest.raises(InvalidInputError, match="stop is"):
        LabelCleaner(stop="soon")._rules()
