"""The address of a cluster: a property of the machine, not of a campaign, so it is no setting."""

import os
import re

from labelchef.base.errors import InvalidInputError

ADDRESS = "LABELCHEF_CLUSTER"
"""The environment variable with the address of the cluster of this machine."""
_ADDRESS = re.compile(r"(tcp|tls|ucx|ucxx|ws|wss)://\S+:\d+/?")
LOCAL = "local"
"""The address of a cluster of processes that is started here: one a core."""


def cluster_address(given: str | None = None) -> str | None:
    """The address that is given, else that of this machine (`LABELCHEF_CLUSTER`); None if there is none.

    >>> cluster_address("tcp://10.0.0.5:8786")
    'tcp://10.0.0.5:8786'
    """
    found = given or os.environ.get(ADDRESS) or None
    if found is not None and found != LOCAL and not _ADDRESS.fullmatch(found):
        raise InvalidInputError(
            f"{found!r} is no address of a cluster; expected that of a Dask scheduler, tcp://HOST:8786, or '{LOCAL}' for "
            "processes of this machine. Start one: `dask scheduler`, then `dask worker tcp://HOST:8786` on each machine",
            code="cluster",
        )
    return found


def required(address: str | None) -> str:
    """The address, or an error that says how to give one."""
    if address is None:
        raise InvalidInputError(
            "engine is 'dask' and no cluster is known; expected an address: cluster='tcp://HOST:8786' in Python, --cluster on "
            f"the command line, or the variable {ADDRESS} ('{LOCAL}' starts processes on this machine)",
            code="cluster",
        )
    return address
