"""The address of a cluster: a property of the machine, not of a campaign, so it is no setting."""

import os

from labelchef.domain.errors import InvalidInputError

ADDRESS = "LABELCHEF_CLUSTER"
"""The environment variable with the address of the cluster of this machine."""
LOCAL = "local"
"""The address of a cluster of processes that is started here: one a core."""


def cluster_address(given: str | None = None) -> str | None:
    """The address that is given, else that of this machine (`LABELCHEF_CLUSTER`); None if there is none."""
    return given or os.environ.get(ADDRESS) or None


def required(address: str | None) -> str:
    """The address, or an error that says how to give one."""
    if address is None:
        raise InvalidInputError(
            "engine is 'dask' and no cluster is known; expected an address: cluster='tcp://HOST:8786' in Python, --cluster on "
            f"the command line, or the variable {ADDRESS} ('{LOCAL}' starts processes on this machine)",
            code="cluster",
        )
    return address
