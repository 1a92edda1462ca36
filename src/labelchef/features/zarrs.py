"""Features in a Zarr array (version 2 or 3) of shape (n, d); chunks should hold whole rows, some 16 MB of them."""

from pathlib import Path
from typing import Any

import numpy as np

from labelchef.domain.errors import InvalidInputError, LabelchefError, MissingExtraError
from labelchef.features.contract import Stored
from labelchef.features.grouped import GroupedFeatures


class ZarrFeatures(GroupedFeatures):
    """A Zarr array, read by rows of chunks."""

    readers = 4

    def __init__(self, location: str | Path) -> None:
        array = _opened(location)
        if array.ndim != 2:
            raise InvalidInputError(
                f"{location} has shape {array.shape}; expected (samples, features)", code="features"
            )
        self._location, self._written = location, int(array.nchunks_initialized)
        n, self._rows_a_chunk = int(array.shape[0]), max(1, int(array.chunks[0]))
        sizes = [min(self._rows_a_chunk, n - start) for start in range(0, n, self._rows_a_chunk)]
        super().__init__(sizes, int(array.shape[1]), np.dtype(array.dtype), str(location))

    def check(self) -> None:
        """See `Features.check`: the shape, and how many chunks are written.

        Zarr does not write a chunk of zeros, and reads one that is missing as zeros: only those there at opening can be missed.
        """
        array = _opened(self._location)
        if tuple(array.shape) != self._whole:
            raise InvalidInputError(
                f"{self.what} has changed while it is used: its shape is {array.shape}, and was {self._whole}. Put it back",
                code="features_changed",
            )
        written = int(array.nchunks_initialized)
        if written < self._written:
            raise InvalidInputError(
                f"{self.what} has {written} chunks, and had {self._written} when it was opened; the others are missing. Bring "
                "them back, or write it again",
                code="features",
            )
        if written > self._written:
            raise InvalidInputError(
                f"{self.what} has changed while it is used: it has {written} chunks, and had {self._written}. Put it back as it "
                "was, or begin again with the new one",
                code="features_changed",
            )

    def _group(self, number: int) -> Stored:
        start, stop = int(self._starts[number]), int(self._starts[number + 1])
        try:
            return np.asarray(_opened(self._location)[start:stop])
        except LabelchefError:
            raise
        except Exception as error:  # codecs fail in many ways
            raise InvalidInputError(
                f"{self.what} cannot be read at row {start}: {str(error)[:300]}. The chunk may be damaged; write it again",
                code="features",
            ) from None


def _opened(location: str | Path) -> Any:
    try:
        import zarr
    except ImportError:
        raise MissingExtraError("Zarr needs zarr; pip install 'labelchef[zarr]'", code="features") from None
    try:
        return zarr.open_array(str(location), mode="r")
    except Exception as error:
        raise InvalidInputError(
            f"{location} cannot be opened as a Zarr array: {str(error)[:300]}. Check the path", code="features"
        ) from None
