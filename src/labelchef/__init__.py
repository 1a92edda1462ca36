"""labelchef trains a classifier from everything you know, and asks people for the few labels that are still worth asking."""

from typing import TYPE_CHECKING, Any

from labelchef.base.errors import (
    ConvergenceWarning,
    InvalidInputError,
    JudgeWarning,
    LabelchefError,
    MissingClassWarning,
    MissingExtraError,
)
from labelchef.base.records import Batch, RoundRecord, StopReason, Votes
from labelchef.base.validation import Gain
from labelchef.base.version import __version__ as __version__

if TYPE_CHECKING:
    from labelchef.believe.functions import labelling_function
    from labelchef.data.campaign_data import Known
    from labelchef.data.encoded import EncodedClassifier, load_model
    from labelchef.loop.cleaner import CleaningResult, EngineSettings, LabelCleaner, SourceSettings
    from labelchef.model.classifier import LinearClassifier

__all__ = [
    "Batch",
    "CleaningResult",
    "ConvergenceWarning",
    "EncodedClassifier",
    "EngineSettings",
    "Gain",
    "InvalidInputError",
    "JudgeWarning",
    "Known",
    "LabelCleaner",
    "LabelchefError",
    "LinearClassifier",
    "MissingClassWarning",
    "MissingExtraError",
    "RoundRecord",
    "SourceSettings",
    "StopReason",
    "Votes",
    "labelling_function",
    "load_model",
]


def __dir__() -> list[str]:
    """What is imported on first use is there too."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the heavy half on first use, so that `import labelchef` and `labelchef --help` stay quick."""
    if name in {"LabelCleaner", "CleaningResult", "EngineSettings", "Known", "SourceSettings"}:
        from labelchef.loop import cleaner

        return getattr(cleaner, name)
    if name == "LinearClassifier":
        from labelchef.model.classifier import LinearClassifier

        return LinearClassifier
    if name in {"EncodedClassifier", "load_model"}:
        from labelchef.data import encoded as model

        return getattr(model, name)
    if name == "labelling_function":
        from labelchef.believe import functions

        return functions.labelling_function
    raise AttributeError(f"module 'labelchef' has no attribute {name!r}")
