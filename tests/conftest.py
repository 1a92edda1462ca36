import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from labelchef.engines import Engine, MemoryEngine
from labelchef.services.workspace import Workspace, open_workspace
from tests.store_support import PostgresServer, postgres_server

settings.register_profile("labelchef", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("labelchef")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12345)


def torch_engine(X: Any, *, bias: bool, **settings: Any) -> Engine:
    """The engine of a GPU, on a CPU."""
    from labelchef.engines.torch_engine import TorchEngine

    return TorchEngine(X, bias=bias, device="cpu", **settings)


@pytest.fixture(params=["memory", "torch"])
def make_engine(request: pytest.FixtureRequest) -> Callable[..., Engine]:
    """Where features lie: once for each engine."""
    return MemoryEngine if request.param == "memory" else torch_engine


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch on one thread, from a seed."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def gpu() -> str:
    torch = pytest.importorskip("torch", reason="no PyTorch here")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU here")
    return "cuda"


@pytest.fixture
def data_folder() -> Path:
    folder = Path(os.environ.get("LABELCHEF_DATA") or "no-such-folder")
    if not folder.is_dir():
        pytest.skip("no real data sets here; set LABELCHEF_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """Where a workspace keeps its facts: None is its own SQLite file."""
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def ws(tmp_path: Path, database: str | None) -> Iterator[Workspace]:
    """A workspace, once for each kind of database."""
    with open_workspace(tmp_path / "home", database) as opened:
        yield opened
