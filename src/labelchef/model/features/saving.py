"""The bytes of a .npy file of features, a block at a time: to copy them or to take their digest without holding them."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelchef.model.features.contract import Features

_ROWS_BYTES = 16 << 20


def npy_pieces(X: "NDArray[Any] | Features") -> Iterator[memoryview]:
    """What `np.save` writes, in pieces.

    >>> stream = io.BytesIO()
    >>> np.save(stream, np.eye(3))
    >>> b"".join(npy_pieces(np.eye(3))) == stream.getvalue()
    True
    """
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(X.dtype), "fortran_order": False, "shape": tuple(X.shape)}
    )
    yield header.getbuffer()
    if isinstance(X, Features):
        for _, block in X.blocks():
            yield np.ascontiguousarray(block).data
            del block
        return
    rows = max(1, _ROWS_BYTES // max(1, X.nbytes // max(1, len(X)))) if X.ndim else 1
    for start in range(0, len(X), rows) if X.ndim else ():
        yield np.ascontiguousarray(X[start : start + rows]).data
