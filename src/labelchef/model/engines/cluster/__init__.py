"""Sweeps over rows on other machines: `ClusterEngine`, on futures of Dask over fixed parts of the rows (docs/scale.md)."""

from labelchef.model.engines.cluster.engine import ClusterEngine
from labelchef.model.engines.cluster.workers import ClusterError

__all__ = ["ClusterEngine", "ClusterError"]
