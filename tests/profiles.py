"""How many examples hypothesis tries: few in `make test`, many with HYPOTHESIS_PROFILE=thorough; the same ones every time."""

import os

from hypothesis import HealthCheck, settings


def load() -> None:
    """Choose the profile; before any test module is read."""
    usual = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=30)
    settings.register_profile("labelchef", usual)
    settings.register_profile("thorough", usual, max_examples=150)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "labelchef"))


def examples(share: float) -> int:
    """A share of the examples of the profile, for tests whose examples are dear."""
    return max(1, round(share * settings().max_examples))
