"""Any PyTorch classifier, cleaned: INFL by forward mode, training on soft labels (extra: `labelchef[torch]`)."""

from labelchef.base.errors import MissingExtraError

try:
    import torch  # noqa: F401
except ImportError:
    raise MissingExtraError("networks need PyTorch; pip install 'labelchef[torch]'", code="torch") from None

from labelchef.networks.classifier import NetworkClassifier
from labelchef.networks.cleaner import NetworkCleaner
from labelchef.networks.constructors import NETWORK_CONSTRUCTORS, FineTune, LastLayer, Retrain
from labelchef.networks.influence import InfluenceSettings
from labelchef.networks.selector import NETWORK_SELECTORS
from labelchef.networks.task import NetworkTask, adapt
from labelchef.networks.training import TrainingSettings

__all__ = [
    "NETWORK_CONSTRUCTORS",
    "NETWORK_SELECTORS",
    "FineTune",
    "InfluenceSettings",
    "LastLayer",
    "NetworkClassifier",
    "NetworkCleaner",
    "NetworkTask",
    "Retrain",
    "TrainingSettings",
    "adapt",
]
