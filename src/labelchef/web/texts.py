"""The texts of the page in the language of the reader.

The English text is the key of a message, and `static/texts/CODE.json` is the catalogue of another language: English text →
text. Templates call `_("…", name=value)`, scripts `t("…", { name: value })` of `static/js/texts.js`; both read the same
catalogue and fill `{name}` alike. A text that a catalogue does not have is shown in English.

Sentences that the server composes, such as the message of a campaign, are translated where they are shown: `told` looks for the
whole sentence, then for a text with places that it fits. What is not found, such as most error messages, stays in English.
`web/catalogue.py` collects all texts and says what a language misses.

The language is the one of the cookie `labelchef_language`, else the first of the browser's that there is, else English.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from markupsafe import Markup, escape
from starlette.requests import Request

COOKIE = "labelchef_language"
LANGUAGES = {"en": "English", "de": "Deutsch"}
"""Code → its own name."""
_FOLDER = Path(__file__).with_name("static") / "texts"
_PLACE = re.compile(r"\{(\w+)\}")


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """English text → text; empty for English."""
    if language == "en":
        return {}
    found: dict[str, str] = json.loads((_FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return found


def language_of(request: Request) -> str:
    """The language in which this reader gets the page."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    return preferred(request.headers.get("accept-language", ""))


def preferred(accepted: str) -> str:
    """The language of an Accept-Language header that there is; the one with the highest weight, English without any.

    >>> preferred("fr-CH, de;q=0.8, en;q=0.9"), preferred("de-AT,en;q=0.5"), preferred("fr"), preferred("de;q=x")
    ('en', 'de', 'en', 'en')
    """
    weights: dict[str, float] = {}
    for part in accepted.split(",")[:50]:
        tag, _, weight = part.partition(";")
        code = tag.strip().lower().split("-")[0]
        try:
            value = float(weight.strip().removeprefix("q=")) if weight else 1.0
        except ValueError:
            continue
        if code in LANGUAGES and value > 0:
            weights[code] = max(value, weights.get(code, 0.0))
    return max(weights, key=lambda code: weights[code], default="en")


def texts_for(language: str) -> Callable[..., str]:
    """The function `_` of the templates: the text in this language, with its places filled."""
    known = catalogue(language)

    def text(message: str, /, **values: object) -> str:
        found = known.get(message, message)
        return fill(found, values) if values else found

    return text


def told_for(language: str) -> Callable[[str], str]:
    """The function `told` of the templates: a sentence of the server in this language."""
    known, forms = catalogue(language), _forms(language)

    def told(message: str) -> str:
        if message in known:
            return known[message]
        for form, text in forms:
            if found := form.fullmatch(message):
                return fill(text, found.groupdict())
        return message

    return told


@cache
def _forms(language: str) -> list[tuple[re.Pattern[str], str]]:
    """Texts with places as patterns, the longest first; those with few letters of their own would fit anything."""
    with_places = [key for key in catalogue(language) if _PLACE.search(key) and len(_PLACE.sub("", key)) >= 10]
    with_places.sort(key=lambda key: (-len(key), key))
    return [(re.compile(pattern_of(key), re.S), catalogue(language)[key]) for key in with_places]


def pattern_of(text: str) -> str:
    """A regular expression that a text with its places filled fits.

    >>> re.fullmatch(pattern_of("round {n} is open"), "round 12 is open")["n"]
    '12'
    """
    seen: set[str] = set()
    parts = _PLACE.split(text)
    for k in range(1, len(parts), 2):
        name = parts[k]
        parts[k] = f"(?P={name})" if name in seen else f"(?P<{name}>.+?)"
        seen.add(name)
    return "".join(part if k % 2 else re.escape(part) for k, part in enumerate(parts))


def fill(text: str, values: Mapping[str, object]) -> str:
    """Put values into the places of a text; markup among the values stays markup, all else is escaped by the template.

    >>> fill("{n} of {all} asked", {"n": 3, "all": 10})
    '3 of 10 asked'
    """
    if any(isinstance(value, Markup) for value in values.values()):
        return Markup(_PLACE.sub(lambda place: str(escape(values[place[1]])), str(escape(text))))
    return _PLACE.sub(lambda place: str(values[place[1]]), text)
