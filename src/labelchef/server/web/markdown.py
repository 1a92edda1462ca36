"""Markdown of leads as HTML that is safe to show: markup in the text is text, and links lead to pages or mails only.

CommonMark with tables and struck-out text. HTML in the text is escaped; images are left out, since the page loads nothing from
elsewhere: `![x](address)` becomes a link. Headings begin at level 3, below those of the page.
"""

import itertools
import re
from collections.abc import Sequence
from functools import cache, lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_LINK = re.compile(r"(https?://|mailto:)[^\s<>\"']+", re.IGNORECASE)
_SUMMARY = 200
"""Characters of a summary."""


@lru_cache(maxsize=1024)
def rendered(text: str) -> Markup:
    """A Markdown text as HTML."""
    reader = _reader()
    tokens = reader.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
        if "style" in token.attrs:  # the alignment of a column: the page allows no inline style
            token.attrSet("class", str(token.attrs.pop("style")).removeprefix("text-align:"))
        for inner in token.children or ():
            if inner.type == "link_open":
                inner.attrSet("rel", "noopener noreferrer")
                inner.attrSet("target", "_blank")
    return Markup(reader.renderer.render(tokens, reader.options, {}))


@lru_cache(maxsize=1024)
def summary(text: str) -> str:
    """The first paragraph as plain text, cut to some words.

    >>> summary("# Spam\\n\\nAdverts, **also** [polite](https://x.example) ones.\\n\\nMore.")
    'Adverts, also polite ones.'
    """
    tokens = _reader().parse(text)
    for before, token in itertools.pairwise(tokens):
        if before.type == "paragraph_open" and token.type == "inline":
            found = " ".join(_plain(token.children or ()).split())
            return found if len(found) <= _SUMMARY else f"{found[:_SUMMARY].rsplit(' ', 1)[0]}…"
    return ""


def _plain(tokens: Sequence[Token]) -> str:
    return "".join(" " if one.type in ("softbreak", "hardbreak") else one.content for one in tokens)


@cache
def _reader() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False, "maxNesting": 20})
    made.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    made.validateLink = lambda url: _LINK.fullmatch(url) is not None  # type: ignore[method-assign]
    return made
