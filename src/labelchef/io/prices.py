"""A price list as a TOML file.

budget = 20.0                # money for all answers; without it there is no limit
explore = 10                 # answers by which an annotator becomes known

[annotators.gpt]             # the name under which its votes are recorded
price = 0.002
kind = "llm"                 # person, crowd, llm or model; person if left out
error = 0.15                 # if it was measured, or for a guess: share of wrong answers
gold = 40                    # on so many samples of known class; 0, a guess, if left out

[annotators.crowd]
price = 0.05
kind = "crowd"               # everybody who has no entry of their own
most = 3                     # answers on an item at most
"""

import tomllib
from dataclasses import fields
from pathlib import Path

from labelchef.domain.errors import InvalidInputError
from labelchef.domain.numbers import check_number, check_whole
from labelchef.domain.routing import Price, PriceList

_LARGEST = 1_000_000


def read_prices(path: Path) -> PriceList:
    """The price list in a file."""
    try:
        if path.stat().st_size > _LARGEST:
            raise _wrong(f"{path} is larger than {_LARGEST} bytes")
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(f"{path} cannot be read as TOML: {error}") from None
    entries, budget, explore = values.pop("annotators", None), values.pop("budget", None), values.pop("explore", 10)
    if values:
        raise _wrong(f"{path}: {next(iter(values))!r} is not known; there are budget, explore and annotators")
    if not isinstance(entries, dict) or not entries:
        raise _wrong(f"{path} has no annotators; expected tables such as [annotators.ann] with a line price = 0.05")
    if budget is not None:
        check_number(budget, f"{path}: budget", above=0.0, code="prices")
    check_whole(explore, f"{path}: explore", 0, code="prices")
    return PriceList(tuple(_price(path, name, entry) for name, entry in entries.items()), budget, explore)


def _price(path: Path, name: str, entry: object) -> Price:
    known = [one.name for one in fields(Price) if one.name != "name"]
    if not isinstance(entry, dict) or "price" not in entry:
        raise _wrong(f"{path}: {name} has no price; expected [annotators.{name}] with a line price = 0.05")
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise _wrong(f"{path}: {name} has {unknown[0]!r}, which is not known; there are {', '.join(known)}")
    return Price(name, **entry)


def _wrong(why: str) -> InvalidInputError:
    return InvalidInputError(f"prices: {why}", code="prices")
