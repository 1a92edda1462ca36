"""A Parquet file at a URL: its own module, since it needs both fsspec and pyarrow."""

from labelchef.model.features.columnar import ParquetFeatures
from labelchef.model.features.remote import RemoteFile


class RemoteParquetFeatures(ParquetFeatures):
    """See `ParquetFeatures`."""

    def __init__(self, url: str) -> None:
        self._file = None
        self._remote = RemoteFile(url)
        self._begin(url, self._remote.open)

    def check(self) -> None:
        """See `Features.check`."""
        self._remote.check()
