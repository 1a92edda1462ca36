"""All texts of the page, collected: from templates, scripts and the constants of the server that pages show.

    python -m labelchef.web.catalogue --missing     English texts that a catalogue does not have, as JSON to fill in
    python -m labelchef.web.catalogue --dead        texts of a catalogue that no page shows any more

A text whose places are filled by the server ("round {n} is open") stands here as it is composed, with names for the places.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from jinja2 import nodes

from labelchef.domain.campaigns import CampaignState, Role, RoundKind, RoundState
from labelchef.domain.learning import ABOUT_SOURCES
from labelchef.domain.receipts import ABOUT_EFFECTS, ABOUT_SUMS
from labelchef.domain.settings import OPTIONS
from labelchef.domain.validation import ABOUT_BASELINES, NOT_YET
from labelchef.services.campaigns import selector_choices
from labelchef.services.labelling.tasks import NONE_FREE, SENTENCES
from labelchef.web.forms import ENCODERS
from labelchef.web.problems import STORE, TITLES
from labelchef.web.rendering import environment
from labelchef.web.texts import LANGUAGES, catalogue
from labelchef.web.views import FAILED, NO_FOLDER

_SCRIPTS = Path(__file__).with_name("static") / "js"
_CALL = re.compile(r"""(?<![\w.])t\(\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`$]*`)""")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')

_TOO_FEW = " They are too few to judge by ({doubt})."
_CROSS_FITTED = (
    "Validation figures are cross-fitted over {n} trusted samples: they train, and each is judged by the "
    "model without it."
)
_HELD_OUT = "Validation figures are those of {n} samples that the selection never saw; the others steer it."
COMPOSED = (
    "round {n} is open",
    "the first model is being trained",
    "the first model is trained",
    "paused by the lead",
    "resumed by the lead",
    "stopped by the lead",
    "there is no vote of yours to take back",
    "decided since you looked: {what}. Nothing was done; look again, or overrule it",
    "changed since you looked: {what}. Nothing was saved; save again to set yours",
    "this name and password do not belong together; try again",
    "Nothing was answered yet.",
    "Source {name} harms: without it, the cross-fitted loss changes by {change}.",
    "cross-fitted over {n} trusted samples",
    "{n} samples held out",
    "All of validation steers the selection, so its figures are optimistic; judge by a test set.",
    NOT_YET,
    _CROSS_FITTED,
    f"{_CROSS_FITTED}{_TOO_FEW}",
    _HELD_OUT,
    f"{_HELD_OUT}{_TOO_FEW}",
)
"""Sentences of services that people meet every day, beside those of enumerations and tables below."""


def template_texts() -> Iterator[str]:
    """The texts of all templates: what `_` is called with."""
    found = environment()
    assert found.loader is not None
    for name in found.list_templates(extensions=["html"]):
        source, _, _ = found.loader.get_source(found, name)
        for call in found.parse(source).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == "_":
                yield from (one.value for one in _constants(call.args[0]))


def _constants(node: nodes.Node) -> Iterator[nodes.Const]:
    """The texts that an argument may be: itself, or those of `a if b else c`."""
    if isinstance(node, nodes.Const):
        yield node
    elif isinstance(node, nodes.CondExpr):
        yield from _constants(node.expr1)
        if node.expr2 is not None:
            yield from _constants(node.expr2)


def script_texts() -> Iterator[str]:
    """The texts of all scripts: what `t` is called with."""
    for path in sorted(_SCRIPTS.glob("*.js")):
        for found in _CALL.findall(path.read_text(encoding="utf-8")):
            body = found[1:-1]
            yield json.loads(f'"{body}"') if found[0] == '"' else body.replace(f"\\{found[0]}", found[0])


def server_texts() -> Iterator[str]:
    """Constants of the server that pages show by `_(value)`, `told(value)` or `t(value)`."""
    for option in OPTIONS.values():
        yield option.title
        yield option.help
        if option.effect:
            yield option.effect
        if option.none and not option.none.isdigit():
            yield option.none
    for names in (CampaignState, Role, RoundKind, RoundState):
        yield from (name.value for name in names)
    for _, hint, _ in selector_choices():
        yield hint
    for _, kind, encoders in ENCODERS:
        yield kind
        yield from (hint for _, hint in encoders)
    yield from SENTENCES.values()
    yield from TITLES.values()
    yield from STORE.values()
    yield from (FAILED, NO_FOLDER, NONE_FREE, ABOUT_SOURCES, ABOUT_BASELINES, ABOUT_EFFECTS, ABOUT_SUMS)
    yield from COMPOSED


def texts() -> list[str]:
    """All of them, sorted."""
    return sorted({*template_texts(), *script_texts(), *server_texts()})


def missing(language: str) -> list[str]:
    """Texts that a catalogue does not have."""
    return [text for text in texts() if text not in catalogue(language)]


def dead(language: str) -> list[str]:
    """Texts of a catalogue that no page shows."""
    return sorted(set(catalogue(language)) - set(texts()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--dead", action="store_true")
    asked = parser.parse_args()
    for code in set(LANGUAGES) - {"en"}:
        if asked.missing:
            print(json.dumps(dict.fromkeys(missing(code), ""), ensure_ascii=False, indent=1))
        if asked.dead:
            print("\n".join(dead(code)))
