"""The settings of a campaign: one dataclass for Python, the command line, the API, the page and the store.

Every field carries an `Option`: what is allowed, what it means, where it may be set. The rest is derived from it:

    checks                        `Settings(...)`, here
    options of `clean`, `init`    `cli.options`
    schemas of the API            `server.web.forms`
    fields of the page            templates, from `OPTIONS`
    table of the docs             `tools.docs_reference`

So a new setting is a field here, a parameter of `LabelCleaner.__init__` if Python users should have it, and the code that
reads it.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from labelchef.base.errors import InvalidInputError, LabelchefWarning, warn_caller
from labelchef.base.numbers import allowed_numbers, as_number

AUTO = "auto"
"""Chosen from the data by cross-validation over the trusted samples that steer."""

TRAIN = "train"
"""Trusted samples train, instead of steering only."""

TRUTH, SOURCE = "truth", "source"
"""How answers of people train: as they are, or as those of a source that may err."""

METRICS = ("accuracy", "f1_macro", "f1", "loss")
"""Names a target may use; for 'loss' smaller is better."""

STRATEGY_VOTERS: Mapping[str, tuple[int, bool]] = {"one": (3, False), "two": (0, True), "three": (2, True)}
"""The paper's strategies as (people, whether the suggestion votes)."""


PAPER: Mapping[str, Any] = {
    "trusted": "steer",
    "gamma": 0.8,
    "selector": "infl",
    "holdout": 0.0,
}
"""The preset 'paper'; `Settings.look_ahead` and `Settings.tol` follow the preset too."""


@dataclass(frozen=True)
class Option:
    """What is allowed as the value of a setting, and how it is presented."""

    kind: type
    """`bool`, `int`, `float`, `str`, or `tuple`: several names."""
    title: str
    """Its label on the page."""
    help: str
    """One sentence, shown on the page, by `--help` and in the docs."""
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    choices: tuple[str, ...] = ()
    """The values allowed; empty for text that is checked where it is used."""
    text: str = "a name"
    """What such a text is."""
    auto: bool = False
    """Whether 'auto' is allowed."""
    none: str = ""
    """What None means; empty if None is not allowed."""
    effect: str = ""
    """What a change does: from when it holds, and what it does to what is there; or why it cannot change. Shown before saving."""
    changeable: bool = False
    """Whether it may change while a campaign runs."""
    labelling: bool = False
    """Whether it is about people who label in a campaign; Python and `labelchef clean` do without it."""
    advanced: bool = False
    """Whether the page shows it under "More settings" only."""

    def check(self, name: str, value: Any) -> Any:
        """The value in its own type, or an error that says what came and what was expected.

        >>> OPTIONS["gamma"].check("gamma", "0.5"), OPTIONS["budget"].check("budget", None)
        (0.5, None)
        >>> OPTIONS["gamma"].check("gamma", 2)
        Traceback (most recent call last):
        labelchef.base.errors.InvalidInputError: gamma is 2; expected 'auto' or a number from 0 to 1
        """
        if (value is None and self.none) or (self.auto and isinstance(value, str) and value == AUTO):
            return value
        found = self._read(value)
        if found is None:
            code = "metric" if name == "target_metric" else name
            raise InvalidInputError(f"{name} is {value!r}; expected {self.expected}", code=code)
        return found

    def _read(self, value: Any) -> bool | int | float | str | tuple[str, ...] | None:
        """The value in its type; None if it is not allowed."""
        if self.kind is bool:
            return value if isinstance(value, bool) else None
        if self.kind is tuple:
            names = isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value)
            return tuple(dict.fromkeys(value)) if names else None
        if self.kind is str:
            short = isinstance(value, str) and 0 < len(value) <= 1000
            return value if short and (not self.choices or value in self.choices) else None
        if self.auto and isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = float(value)
        return as_number(value, self.kind, **self._bounds)

    @property
    def several(self) -> bool:
        """Whether it holds several names: it has a page of its own, not a field."""
        return self.kind is tuple

    @property
    def _bounds(self) -> dict[str, float]:
        return {"least": self.least, "most": self.most, "above": self.above, "below": self.below}

    @property
    def expected(self) -> str:
        """What is allowed, in words."""
        if self.kind is bool:
            said = "true or false"
        elif self.kind is tuple:
            said = f"a list of {self.text}"
        elif self.kind is str:
            said = f"one of: {', '.join(self.choices)}" if self.choices else self.text
        else:
            said = allowed_numbers(self.kind, **self._bounds)
        auto = f"{AUTO!r} or " if self.auto else ""
        return f"{auto}{said}{f', or None for {self.none}' if self.none else ''}"


def _option(default: Any, kind: type, title: str, help: str, **rest: Any) -> Any:
    return field(default=default, metadata={"option": Option(kind, title, help, **rest)})


@dataclass(frozen=True)
class Settings:
    """Everything of a campaign that is not data.

    >>> Settings(preset="paper").gamma
    0.8
    """

    preset: str = _option(
        "default", str, "Preset",
        "default, or paper: the paper's pipeline (trusted samples only steer, gamma 0.8, INFL's best case, no hold-out, nothing "
        "chosen anew). It sets what is left at its default.",
        choices=("default", "paper"), advanced=True,
        effect=
        "Fixed: it only fills in the other settings when a campaign is made. Change those, or copy the campaign "
        "with another preset.",
    )  # fmt: skip
    trusted: str = _option(
        "train", str, "Trusted samples",
        "train: trusted samples train the model, and each is judged by the model without it; steer: they only steer the "
        "selection, and judge.",
        choices=("train", "steer"), advanced=True,
        effect=
        "Fixed: every figure so far was measured on trusted samples in this role; they could not be compared with "
        "those after a change. Copy the campaign with another value.",
    )  # fmt: skip
    sources: str = _option(
        AUTO, str, "Model of the sources",
        "How far the sources of weak labels are believed: a source model by its name, or none to ignore weak labels; auto: "
        "chosen by cross-validation over the clean samples.",
        choices=(AUTO, "none", "shares", "product", "naive_bayes", "joint", "dawid_skene"), advanced=True,
        effect=
        "Fixed: the stored labels and figures of all rounds rest on this belief in the sources. Copy the campaign "
        "with another value; answers can go along.",
    )  # fmt: skip
    muted: tuple[str, ...] = _option(
        (), tuple, "Muted sources",
        "Sources whose votes are not used, by name; from the next model on. Only where trusted samples train.",
        text="names of sources", changeable=True, advanced=True, effect=
        "From the next model on: the one after the open batch or, if no batch is out, one that is made at once. Answers stay.",
    )  # fmt: skip
    answers: str = _option(
        AUTO, str, "Answers of people",
        "Whether an answer trains as truth, or as one more source that may err; auto: as truth unless people are known to err.",
        choices=(AUTO, TRUTH, SOURCE), advanced=True,
        effect=
        "Fixed: the stored labels of all rounds rest on it. Copy the campaign with another value; answers can go "
        "along.",
    )  # fmt: skip
    selector: str = _option(
        "margin",
        str,
        "What picks the items",
        "What picks the samples to ask next.",
        changeable=True,
        effect="From the next batch on: it picks that batch. The open batch, answers and model stay. Suggestions come "
        "from the new one too.",
    )
    constructor: str = _option(
        "newton", str, "What updates the model", "What updates the model after a round: newton, retrain or deltagrad_l.",
        choices=("newton", "retrain", "deltagrad_l"), advanced=True,
        changeable=True, effect=
        "From the next model on. The model is built again first, as after a restart; answers and rounds so far "
        "stay.",
    )  # fmt: skip
    gamma: float | str = _option(
        AUTO, float, "Weight of a weak label (gamma)",
        "Weight of a weak label, a clean one having 1; auto: chosen by cross-validation over the trusted samples.",
        least=0, most=1, auto=True,
        effect=
        "Fixed: the stored labels and figures of all rounds rest on this weight; 'auto' chooses it anew as labels "
        "come in. Copy the campaign with another value; answers can go along.",
    )  # fmt: skip
    l2: float | str = _option(
        AUTO,
        float,
        "L2 strength",
        "Strength of the L2 penalty; auto: chosen along with gamma.",
        above=0,
        auto=True,
        effect="Fixed: the first model, which gains are measured against, was trained with it. Copy the campaign with "
        "another value; answers can go along.",
    )
    holdout: float | str = _option(
        AUTO, float, "Share of validation that judges",
        "Share of the trusted samples that judge and are used for nothing else; auto: none where trusted samples train, else "
        "half of 100 samples and more.",
        least=0, below=1, auto=True,
        effect="Fixed: samples that have trained or steered cannot judge any more. Copy the campaign with another value.",
    )  # fmt: skip
    audit: float = _option(
        0.0, float, "Share that audits",
        "Share of what is asked that is drawn by chance, shown without a suggestion and predicted before it is answered: it "
        "gives an accuracy whose interval holds whenever one looks. 0: no audit.",
        least=0, most=1,
        changeable=True, effect=
        "From the next batch on. The share is one of all that is asked, so a higher one catches up first. Audited "
        "answers stay; with 0 their figures are not shown.",
    )  # fmt: skip
    engine: str = _option(
        AUTO, str, "Engine",
        "Where the features are: in memory, on a GPU (cuda), streamed from their files (disk), or on the workers of a cluster, "
        "with which the server was started (dask); auto: the cluster or a GPU if there is one and X is large, their files if "
        "these take more than half of the free memory.",
        choices=(AUTO, "memory", "cuda", "disk", "dask"), advanced=True,
        changeable=True, effect="At once: the model is built again there, as after a restart. Results are the same to rounding.",
    )  # fmt: skip
    seed: int = _option(
        0,
        int,
        "Seed",
        "Seed of every random choice.",
        least=0,
        most=2**53,
        advanced=True,
        effect="Fixed: it says which samples judge and every draw so far; a replay needs it. Copy the campaign with "
        "another seed.",
    )
    batch_size: int = _option(
        10, int, "Batch size", "Samples a round, before the model learns from them.",
        least=1, most=2**53,
        changeable=True, effect="From the next batch on; the open batch keeps what it has.",
    )  # fmt: skip
    budget: int | None = _option(
        100,
        int,
        "Budget",
        "Samples to ask in all.",
        least=1,
        most=2**53,
        none="no limit",
        changeable=True,
        effect="From the next batch on; the open batch is asked to its end. A finished campaign goes on if there is "
        "budget left.",
    )
    target: float | None = _option(
        None, float, "Target", "Stop once the target metric is this good on the validation samples that judge.",
        none="no target",
        changeable=True, effect="Looked at before the next batch. A finished campaign goes on if the new target is not reached.",
    )  # fmt: skip
    target_metric: str = _option(
        "f1_macro", str, "Metric", "The metric of the target and of the charts; f1 is for two classes.",
        choices=METRICS,
        changeable=True, effect=
        "Charts and target show it at once; from the next model on, classes are decided in its favour. The model "
        "is built again first, as after a restart.",
    )  # fmt: skip
    stop: str | None = _option(
        None, str, "Stopping rule",
        "A further rule that ends the campaign, such as MaxRounds(50) | Plateau('loss', patience=5) & NoPredictedGain(), or "
        "with an audit Audited(0.9).",
        text="a rule", none="no further rule",
        changeable=True, effect="Looked at before the next batch. A finished campaign goes on if the new rule does not end it.",
    )  # fmt: skip
    people: int = _option(
        1, int, "People an item", "People who vote on each item, without seeing each other's votes.",
        least=0, most=1000, labelling=True,
        changeable=True, effect=
        "At once, for the open batch too: items that have enough votes then need no more, others wait for more. "
        "Decisions so far stay.",
    )  # fmt: skip
    suggestion_votes: bool = _option(
        False, bool, "The suggestion is one more voter",
        "Count the suggestion as one more vote; the selector must suggest labels.", labelling=True,
        changeable=True, effect="At once: votes of the open batch are counted with or without it. Decisions so far stay.",
    )  # fmt: skip
    stop_at_majority: bool = _option(
        False, bool, "No votes that change nothing",
        "Give an item to further people only while their votes can change the majority.", labelling=True,
        changeable=True, effect="From the next vote on, for the open batch too. Decisions so far stay.",
    )  # fmt: skip
    ahead: int = _option(
        0, int, "Work ahead", "Items of the next ranks for people who finish a batch early.",
        least=0, most=2**53, labelling=True,
        changeable=True, effect="From the next batch on; the open batch keeps what it has.",
    )  # fmt: skip
    blind_share: float = _option(
        0.0, float, "Share shown blind",
        "Share of the items shown without the suggestion, to measure how much it influences people; 1 hides every suggestion.",
        least=0, most=1, labelling=True,
        changeable=True, effect="From the next batch on; the open batch keeps what it has.",
    )  # fmt: skip
    gold_share: float = _option(
        0.0, float, "Share of hidden gold",
        "Share of the items handed to each person that are trusted samples, shown blind like others: their answers measure the "
        "person, and are no votes. The share shown blind must be at least as large.",
        least=0, most=0.5, labelling=True,
        changeable=True, effect="For items that are given out from now on. Answers on gold so far stay.",
    )  # fmt: skip
    tie_votes: int = _option(
        1, int, "Further votes on a tie",
        "Votes that are asked beyond people an item where the votes tie and a member has not voted yet; then the lead is asked. "
        "0: the lead is asked at once.",
        least=0, most=10, labelling=True,
        changeable=True, effect="When the open batch is counted; items that wait for a further vote already still do.",
    )  # fmt: skip
    lease_minutes: float = _option(
        15.0, float, "Minutes an item is held", "How long an item is reserved for the person it was given to.",
        above=0, most=1e6, labelling=True,
        changeable=True, effect="For items that are given out from now on; a shorter time also ends what would be held longer.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            object.__setattr__(self, name, option.check(name, getattr(self, name)))
        if self.preset == "paper":
            for one in fields(self):
                if one.name in PAPER and getattr(self, one.name) == one.default:
                    object.__setattr__(self, one.name, PAPER[one.name])
        if self.people == 0 and not self.suggestion_votes:
            raise InvalidInputError(
                "people is 0 and the suggestion does not vote; expected at least one voter an item", code="people"
            )
        if self.answers == SOURCE and self.trusted != TRAIN:
            raise InvalidInputError(
                "answers is 'source' and trusted is 'steer'; expected trusted 'train', where a model of the clean samples "
                "judges the answers. Leave one of the two at its default",
                code="answers",
            )
        if self.gold_share > self.blind_share:
            raise InvalidInputError(
                f"gold_share is {self.gold_share:g} and blind_share is {self.blind_share:g}; expected a blind_share of at least "
                "gold_share: hidden gold is shown blind, and would be known by that. Set both",
                code="gold_share",
            )

    @property
    def look_ahead(self) -> bool:
        """Whether the picks of a batch account for each other."""
        return self.preset != "paper"

    @property
    def tol(self) -> float:
        """Relative distance of a model of newton to its optimum: proven; estimated for updates where trusted samples train."""
        return 1e-5 if self.preset == "paper" else 1e-3

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Settings":
        """Settings from names and values; an unknown name is refused."""
        if unknown := sorted(set(values) - set(OPTIONS)):
            raise InvalidInputError(
                f"unknown setting {unknown[0]!r}; expected one of: {', '.join(sorted(OPTIONS))}", code="settings"
            )
        return cls(**values)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> "Settings":
        """Settings that this version or an earlier one stored; warns of a value that is not used any more.

        >>> Settings.stored({"blind": True, "tol": 1e-3}).blind_share
        1.0
        """
        made = cls.of({name: value for name, value in values.items() if name not in REMOVED})
        if values.get("blind"):
            made = replace(made, blind_share=1.0)
        present = {**REMOVED, "look_ahead": made.look_ahead, "tol": made.tol, "blind": made.blind_share == 1.0}
        for name in sorted(REMOVED.keys() & values.keys()):
            if values[name] not in (present[name], REMOVED[name]):
                warn_caller(
                    f"{name} is no setting any more: {values[name]!r} was stored, {present[name]!r} holds now",
                    LabelchefWarning,
                )
        return made

    def changed(self, **changes: Any) -> "Settings":
        """The same with changes, of what may change while a campaign runs."""
        allowed = [name for name, option in OPTIONS.items() if option.changeable]
        if others := sorted(set(changes) - set(allowed)):
            raise InvalidInputError(
                f"{others[0]!r} cannot change once a campaign exists; expected one of: {', '.join(allowed)}. To use another "
                "value, copy the campaign: `labelchef campaign copy NAME --set SETTING=VALUE`",
                code="settings",
            )
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Name → value."""
        return asdict(self)

    def lasting(self) -> dict[str, Any]:
        """What may not change within a campaign of `labelchef clean`: two that differ here are not the same one."""
        return {
            name: getattr(self, name)
            for name, option in OPTIONS.items()
            if not (name in _WHEN_TO_STOP or option.labelling or name in ("muted", "engine"))
        }

    def built_with(self) -> dict[str, Any]:
        """What a session is built with: where one of these has changed, the session is built again from the ledger."""
        kept = {*_WHEN_TO_STOP, *(name for name, option in OPTIONS.items() if option.labelling)}
        kept -= {"target_metric", "suggestion_votes"}
        return {name: value for name, value in self.as_dict().items() if name not in kept}


REMOVED: Mapping[str, Any] = {
    "look_ahead": True, "fit_intercept": True, "tol": 1e-3, "learning_rate": None, "epochs": None, "minibatch": None,
    "feature_dtype": None, "blind": False,
}  # fmt: skip
"""Settings of earlier versions with their defaults."""
_WHEN_TO_STOP = ("batch_size", "budget", "target", "target_metric", "stop")
OPTIONS: Mapping[str, Option] = {f.name: f.metadata["option"] for f in fields(Settings)}
"""Name → option, in the order of the fields."""


def voters_of(strategy: str) -> tuple[int, bool]:
    """How many people vote, and whether the suggestion does.

    >>> voters_of("three")
    (2, True)
    """
    if strategy not in STRATEGY_VOTERS:
        raise InvalidInputError(
            f"unknown strategy {strategy!r}; expected one of: {', '.join(STRATEGY_VOTERS)}", code="strategy"
        )
    return STRATEGY_VOTERS[strategy]


def fixed(value: float | str) -> float | None:
    """The number, None for 'auto'.

    >>> fixed(0.5), fixed("auto")
    (0.5, None)
    """
    return None if value == AUTO else float(value)
