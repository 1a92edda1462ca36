"""Small campaigns of texts whose sources are rules."""

from pathlib import Path
from typing import Any

import numpy as np

from labelchef.base.settings import Settings
from labelchef.believe.rules import Rule, rule_of, rules_as_text
from labelchef.data.intake.detecting import Given
from labelchef.server.intake.starting import look, start_campaign
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace

CLASSES = ("ham", "spam")
WORDS = {"ham": ["song", "voice", "love", "music"], "spam": ["subscribe", "free", "click", "channel"]}
RULES: tuple[Rule, ...] = (
    rule_of({"name": "asks", "kind": "keyword", "column": "comment", "label": "spam", "words": ["subscribe", "FREE"]}),
    rule_of({"name": "praise", "kind": "regex", "column": "comment", "label": "ham", "pattern": r"so(ng|ul)|voice"}),
    rule_of({"name": "wrong", "kind": "keyword", "column": "comment", "label": "ham", "words": ["click"]}),
    rule_of({"name": "long", "kind": "threshold", "column": "length", "label": "spam", "at_least": 30}),
)


def texts(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Comments and their classes."""
    rng, y = np.random.default_rng(seed), np.random.default_rng(seed + 1).integers(0, 2, n)
    found = []
    for k in y:
        own, other = WORDS[CLASSES[k]], WORDS[CLASSES[1 - k]]
        said = [*rng.choice(own, 2), *(rng.choice(other, 1) if rng.random() < 0.3 else [])]
        said += [f"word{w}" for w in rng.integers(0, 15, 3)]
        found.append("🎉 " + " ".join(rng.permutation(said)))
    return found, [CLASSES[k] for k in y]


def label_batch(ws: Workspace, campaign: str, person: str = "ann", n: int = 120, trusted: int = 40) -> None:
    """Let a person say the truth until a batch is complete, and the model follow."""
    y, complete = texts(n + trusted)[1], False
    while not complete:
        found = next_tasks(ws, campaign, person)
        assert isinstance(found, list), found
        complete = cast_vote(ws, campaign, person, found[0].item, y[int(found[0].item)]).batch_complete
    advance(ws, campaign)


def make(
    ws: Workspace,
    folder: Path,
    rules: tuple[Rule, ...] = RULES,
    n: int = 120,
    trusted: int = 40,
    name: str = "spam",
    **settings: Any,
) -> str:
    """A campaign from files, with its first model and batch."""
    folder.mkdir(parents=True, exist_ok=True)
    comments, y = texts(n + trusted)
    lines = [f'{k},"{text}",{len(text)}' for k, text in enumerate(comments[:n])]
    (folder / "comments.csv").write_text("id,comment,length\n" + "\n".join(lines) + "\n")
    gold = [
        f'g{k},"{text}",{len(text)},{label}' for k, (text, label) in enumerate(zip(comments[n:], y[n:], strict=True))
    ]
    (folder / "gold.csv").write_text("id,comment,length,label\n" + "\n".join(gold) + "\n")
    (folder / "rules.toml").write_text(rules_as_text(rules))
    given = Given(trusted=(folder / "gold.csv",), rules=(folder / "rules.toml",), classes=CLASSES)
    looked = look([folder / "comments.csv"], given)
    made = start_campaign(ws, name, looked.content, Settings.of({"budget": 20, "batch_size": 5, **settings}), "lead")
    advance(ws, made.slug)
    return made.slug
