"""Features wherever they are: an array, a file, a folder of files; read in blocks ahead of their use.

`Features` is the contract, `ArrayFeatures` the one for arrays, `open_features` opens files.
"""

from labelchef.model.features.contract import ArrayFeatures, Features, check_finite
from labelchef.model.features.opening import is_streamed, open_features

__all__ = ["ArrayFeatures", "Features", "check_finite", "is_streamed", "open_features"]
