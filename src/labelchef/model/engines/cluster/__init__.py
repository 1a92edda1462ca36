"""Sweeps over rows on other machines: `ClusterEngine`, and `Workers`, the protocol of what runs there (docs/scale.md).

`dask_workers` is the implementation with Dask, the only module that imports it.
"""

from labelchef.model.engines.cluster.engine import ClusterEngine
from labelchef.model.engines.cluster.workers import ClusterError, Limits, Workers

__all__ = ["ClusterEngine", "ClusterError", "Limits", "Workers"]
