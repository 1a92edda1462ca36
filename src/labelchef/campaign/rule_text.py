"""Stopping rules as text, for the command line, the API and the page: `MaxRounds(50) | Plateau('loss', patience=5)`.

The text is read as a Python expression of which only these parts are allowed: the rules by name, called with numbers and
texts, `&`, `|` and brackets.
"""

import ast
from collections.abc import Callable

from labelchef.campaign.stopping import MaxRounds, NoPredictedGain, Plateau, StoppingRule, TargetReached
from labelchef.domain.errors import InvalidInputError

RULES: dict[str, Callable[..., StoppingRule]] = {
    rule.__name__: rule for rule in (MaxRounds, NoPredictedGain, Plateau, TargetReached)
}
"""Rules by name."""


def parse_rule(text: str) -> StoppingRule:
    """The rule that a text describes.

    >>> print(parse_rule("MaxRounds(50) | Plateau('loss', patience=5) & NoPredictedGain()"))
    (50 rounds done or (no better loss for 5 rounds and no sample is predicted to help))
    """
    try:
        return _rule(ast.parse(text.strip(), mode="eval").body)
    except InvalidInputError as error:
        raise InvalidInputError(f"stop is {text!r}: {error}", code="stop") from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InvalidInputError(
            f"stop is {text!r}; expected rules such as MaxRounds(50) | Plateau('loss', patience=5), made of "
            f"{', '.join(RULES)} with & and | ({str(error).splitlines()[0]})",
            code="stop",
        ) from None


def _rule(node: ast.expr) -> StoppingRule:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _rule(node.left) | _rule(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return _rule(node.left) & _rule(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RULES:
        named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        return RULES[node.func.id](*map(_value, node.args), **named)
    raise ValueError(f"{ast.unparse(node)[:80]} is not a rule")


def _value(node: ast.expr) -> int | float | str:
    value = ast.literal_eval(node)
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither a number nor a text")
