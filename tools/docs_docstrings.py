"""Docstrings as Markdown, for the Python reference of the site: an extension of Griffe.

Our docstrings are plain text with backticks. Two things need a form: sections of the kind `Parameters` with lines `name : text`
become lists, and examples become code blocks.
"""

import re

from griffe import Extension, Object

_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.M)
_ENTRY = re.compile(r"^([\w*][\w*, ]*?) : ", re.M)
_STAR = re.compile(r"`[^`]*`|^>>> .*$|\*", re.M)
_EXAMPLE = re.compile(r"(?:^>>> .*(?:\n(?!\s*$).*)*\n?)+", re.M)


def as_markdown(text: str) -> str:
    """A docstring as Markdown.

    >>> print(as_markdown("What it does.\\n\\nParameters\\n----------\\na, b : two\\n    numbers\\nc : one"))
    What it does.
    <BLANKLINE>
    **Parameters**
    <BLANKLINE>
    - `a, b`: two
        numbers
    - `c`: one
    >>> as_markdown("Adds W* and `*`.\\n\\n>>> 1 + 1\\n2")
    'Adds W\\\\* and `*`.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    first, *rest = _SECTION.split(_STAR.sub(lambda found: found[0] if found[0] != "*" else r"\*", text))
    parts = [first]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        parts.append(f"**{title}**\n\n{_ENTRY.sub(lambda entry: f'- `{entry[1]}`: ', body)}")
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0].rstrip()}\n```\n", "".join(parts)).rstrip()


class Docstrings(Extension):
    """Rewrites every docstring that Griffe reads."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Called once for each object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
