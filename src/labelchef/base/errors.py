"""Errors and warnings that users see.

Every error says what came, what was expected and what to do, and carries a stable `code`, so that the command
line and other front ends can report it without parsing the message.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path


class LabelchefError(Exception):
    """Base of every error raised on purpose by labelchef.

    >>> try:
    ...     raise InvalidInputError("gamma is 2.0; expected 0 ≤ gamma ≤ 1", code="gamma")
    ... except ValueError as error:
    ...     print(error.code)
    gamma
    """

    def __init__(self, message: str, *, code: str = "error") -> None:
        super().__init__(message)
        self.code = code


class InvalidInputError(LabelchefError, ValueError):
    """An argument, array or file that cannot be used as it is."""


class TooLargeError(InvalidInputError):
    """A file whose content needs more memory than one may take; see `labelchef.base.limits`."""

    def __init__(self, message: str, *, code: str = "memory") -> None:
        super().__init__(message, code=code)


class MissingExtraError(LabelchefError, ImportError):
    """A feature needs an optional dependency that is not installed."""


class NotFittedError(LabelchefError, ValueError, AttributeError):
    """A method was called before `fit`."""


class NotFoundError(LabelchefError, LookupError):
    """A campaign, item or account that does not exist, or that this person may not see."""


class ForbiddenError(LabelchefError, PermissionError):
    """Something this person may not do."""


class ConflictError(LabelchefError):
    """Something that the present state does not allow: an item is taken, a campaign is in another state."""


class ChangedError(ConflictError):
    """Something that another person changed since this one looked; `now` is what stands, by name."""

    def __init__(self, message: str, *, now: Mapping[str, object]) -> None:
        super().__init__(message, code="changed")
        self.now = dict(now)


class NameTakenError(ConflictError):
    """A name that another campaign has; `suggestion` is one that is free, `campaign` the short name of the other."""

    def __init__(self, message: str, *, suggestion: str, campaign: str) -> None:
        super().__init__(message, code="name_taken")
        self.suggestion, self.campaign = suggestion, campaign


class ThrottledError(ForbiddenError):
    """Too many attempts; the next is allowed after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float, code: str = "throttled") -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class StoreError(LabelchefError):
    """The database or a campaign's folder cannot be used: locked, missing, full or damaged. Nothing was changed."""


class LabelchefWarning(UserWarning):
    """Base of every warning raised by labelchef."""


def warn_caller(message: str, category: type[LabelchefWarning]) -> None:
    """Warn, and name the line of the first caller outside of this package."""
    package, frame, level = str(Path(__file__).parents[1]), sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class ConvergenceWarning(LabelchefWarning):
    """A solver stopped before it reached its tolerance; the diagnostics say by how much."""


class JudgeWarning(LabelchefWarning):
    """No validation samples, or too few, are kept out of the selection to measure the gain."""


class MissingClassWarning(LabelchefWarning):
    """A class never occurs in the validation set, so validation says nothing about it."""


class PredictionWarning(LabelchefWarning):
    """New rows whose predictions may be taken for those of others, or with values that the model cannot read."""


class SilentSourceWarning(LabelchefWarning):
    """A source of votes says nothing on any sample."""
