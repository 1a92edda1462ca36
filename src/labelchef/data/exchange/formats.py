"""The formats by name, and which of them a file has."""

from pathlib import Path

from labelchef.data.exchange.argilla import ARGILLA
from labelchef.data.exchange.cleanlab import CLEANLAB
from labelchef.data.exchange.crowd_kit import CROWD_KIT
from labelchef.data.exchange.hugging_face import HUGGING_FACE
from labelchef.data.exchange.label_studio import LABEL_STUDIO
from labelchef.data.exchange.prodigy import PRODIGY
from labelchef.data.exchange.records import Format, refuse
from labelchef.data.exchange.snorkel import SNORKEL

FORMATS = {one.name: one for one in (LABEL_STUDIO, PRODIGY, ARGILLA, HUGGING_FACE, CLEANLAB, CROWD_KIT, SNORKEL)}
"""Name → format."""


def sniff(path: Path) -> str | None:
    """The name of the format that a file or folder has, judged by its content; None if it is of none of them."""
    return next((name for name, one in FORMATS.items() if path.exists() and one.recognises(path)), None)


def format_named(name: str) -> Format:
    """A format by its name.

    >>> format_named("prodigy").endings
    ('.jsonl',)
    """
    if name not in FORMATS:
        refuse(f"format is {name!r}; expected one of: {', '.join(FORMATS)}")
    return FORMATS[name]
