"""The texts of the page are marked, in templates by `_` and in scripts by `t`, so that they can be collected."""

import re
from pathlib import Path

import pytest
from markupsafe import Markup

from labelchef.server.web import rendering
from labelchef.server.web.rendering import environment, text

WEB = Path(rendering.__file__).parent
NO_TEXTS = {"labelchef", "report.html", "ledger.jsonl", "rules.toml", "pts", "doctype", "html", "nbsp", "amp"}
"""Words that stand in templates without a mark: names, files and entities."""


def bare(source: str) -> list[str]:
    """Words of a template that readers would see and that are not marked: in text, and in attributes that are read."""
    tokens = environment().lex(source)
    text = "".join(value if kind == "data" else "\0" if kind.endswith("_begin") else "" for _, kind, value in tokens)
    read = re.findall(r'\b(?:aria-label|title|placeholder|alt|data-confirm|data-busy|data-done)="([^"]*)"', text)
    text = re.sub(r"<(script|code|kbd|svg)\b.*?</\1>|<!--.*?-->|(?<![<\w])/[\w/]+/", "", text, flags=re.S)
    shown = re.sub(r"<[^<>]*>", " ", text)
    words = [
        word for part in (shown, *read) if not part.startswith("/") for word in re.findall(r"[^\W\d_]{2,}[\w.]*", part)
    ]
    return [word for word in words if word not in NO_TEXTS]


def test_bare_words_are_found() -> None:
    assert bare('<p class="soft">Some {{ n }} words{% if x %}, too{% endif %}</p>') == ["Some", "words", "too"]
    assert bare('<input placeholder="Name" aria-label="{{ _("Name") }}">') == ["Name"]
    assert bare('<b>{{ _("All of it") }}</b> <code>labelchef serve</code> · labelchef') == []


@pytest.mark.parametrize("name", sorted(path.relative_to(WEB / "templates").as_posix() for path in WEB.rglob("*.html")))
def test_every_text_of_a_template_is_marked(name: str) -> None:
    assert bare((WEB / "templates" / name).read_text()) == [], f"{name}: wrap these in _(…)"


@pytest.mark.parametrize("path", sorted((WEB / "static" / "js").glob("*.js")), ids=lambda path: path.name)
def test_every_sentence_of_a_script_is_marked(path: Path) -> None:
    """Literals that begin like a sentence, or fill a place of one, are arguments of t(…)."""
    code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*|^import .*$", "", path.read_text(), flags=re.S | re.M)
    wrapped = re.sub(r"""(?<![\w.])t\(\s*("(?:[^"\\]|\\.)*"|`[^`]*`)""", "t(", code)
    left = re.findall(r"""(?<!=== )(["`][A-Z][a-z’]+(?: [\w$].*?)?["`])""", wrapped)
    words = "Enter Escape Backspace Shift CapsLock PageUp PageDown ArrowUp ArrowDown ArrowLeft ArrowRight Home End"
    technical = {"Accept", "Content-Type", "Content Security Policy", *words.split()}
    assert [one for one in left if one.strip('"`') not in technical] == [], f"{path.name}: wrap these in t(…)"


def test_values_are_escaped_unless_they_are_markup() -> None:
    shown = environment().from_string('{{ _("{who} & {command}", who=name, command=command) }}')
    assert shown.render(name="<b>", command="<i>") == "&lt;b&gt; &amp; &lt;i&gt;"
    assert shown.render(name="<b>", command=Markup("<code>x</code>")) == "&lt;b&gt; &amp; <code>x</code>"
    assert text("{left} as it is") == "{left} as it is"


def test_the_preview_has_words_for_every_option_that_a_message_names() -> None:
    """Messages of the intake name options of the command line; the page says what to choose or tick instead."""
    script, intake = (WEB / "static/js/intake.js").read_text(), WEB.parents[1] / "data" / "intake"
    tables = "".join(re.findall(r"^const (?:BY_COLUMN|BY_FILE|SWITCHES) = \{.*\};$", script, flags=re.M))
    known = {"classes", "functions", *re.findall(r"([a-z]+(?:-[a-z]+)*)\"?: \"", tables)}
    named = {
        option
        for path in intake.glob("*.py")
        for text in re.findall(r"[\"'].*[\"']", path.read_text())
        for option in re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text)
    }
    assert {"truth-column", "by-position", "trusted"} <= named
    assert named - known == {"vote-columns", "what"}  # of the command line's own checks, and of a docstring
