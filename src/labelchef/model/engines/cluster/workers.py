"""The error of a cluster, and the connection to one; Dask is imported by nobody but `dask_workers` and `parts`."""

from typing import TYPE_CHECKING

from labelchef.base.errors import LabelchefError

if TYPE_CHECKING:
    from labelchef.model.engines.cluster.dask_workers import DaskWorkers


class ClusterError(LabelchefError, RuntimeError):
    """The cluster cannot do what is asked; nothing was changed, and a later try goes on."""

    def __init__(self, message: str, *, code: str = "cluster") -> None:
        super().__init__(message, code=code)


class TasksLostError(ClusterError):
    """The cluster has lost tasks with the workers that were to do them; they can be sent again."""


def connect(address: str) -> "DaskWorkers":
    """The workers of a cluster; one connection a process and address."""
    from labelchef.model.engines.cluster.dask_workers import dask_workers

    return dask_workers(address)
