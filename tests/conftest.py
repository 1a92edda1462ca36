import importlib.util
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelchef.data.encoders import images, sentences, specs
from labelchef.loop.rebuild import ReplayedRound
from labelchef.model.engines import Engine, MemoryEngine
from labelchef.server.campaigns import trained
from labelchef.server.campaigns.trained import ReplayOutcome
from labelchef.server.people import accounts
from labelchef.server.workspace import Workspace, open_workspace
from tests import profiles
from tests.commands import commands
from tests.store_support import PostgresServer, postgres_server

profiles.load()


@pytest.fixture(scope="session", autouse=True)
def usual_hasher() -> Iterator[Callable[[], Any]]:
    """Tests hash passwords by argon2id with its least memory and time, 0.2 s less for each; gives the hasher in use."""
    if importlib.util.find_spec("argon2") is None:  # the tests of engines run without the extra serve, too
        yield accounts._hasher
        return
    from pwdlib import PasswordHash
    from pwdlib.hashers.argon2 import Argon2Hasher

    usual, cheap = accounts._hasher, PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "_hasher", lambda: cheap)
        yield usual


@pytest.fixture(scope="session", autouse=True)
def light_encoders() -> Iterator[None]:
    """Texts and images are encoded as where the extras with pretrained networks are not installed; see `pretrained`.

    A network takes ten seconds to import and to load, and seconds for a hundred texts.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specs, "usual_network", lambda n_rows=0: None)
        patch.setattr(specs, "has_efficientnet", lambda: False)
        yield


@pytest.fixture
def pretrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts and images are encoded by what is installed, as in use."""
    monkeypatch.setattr(specs, "usual_network", sentences.usual_network)
    monkeypatch.setattr(specs, "has_efficientnet", images.has_efficientnet)


@pytest.fixture(scope="session", autouse=True)
def ended_commands() -> Iterator[None]:
    yield
    if commands.cache_info().currsize:
        commands().close()


@pytest.fixture
def held_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays that go no further than their first round until they are told to stop."""
    replay = trained.replay

    def halfway(ws: Workspace, campaign: str, tell: Callable[[ReplayedRound], None]) -> ReplayOutcome:
        def wait(one: ReplayedRound) -> None:
            tell(one)
            while not any(run.stop.wait(0.01) for run in ws.runs.named("job:")):
                pass

        return replay(ws, campaign, wait)

    monkeypatch.setattr(trained, "replay", halfway)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12345)


def torch_engine(X: Any, *, bias: bool, **settings: Any) -> Engine:
    """The engine of a GPU, on a CPU."""
    from labelchef.model.engines.torch_engine import TorchEngine

    return TorchEngine(X, bias=bias, device="cpu", **settings)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two worker processes of one core each, for all tests that need some; `Workers`."""
    from labelchef.model.engines.cluster.dask_workers import DaskWorkers, dask_workers, local_cluster

    with local_cluster(workers=2) as processes:
        workers = DaskWorkers(processes.scheduler_address)
        yield workers
        dask_workers(processes.scheduler_address).close()  # that of engines which were given the address
        workers.close()


def disk_engine(X: Any, *, bias: bool, **settings: Any) -> Engine:
    """The engine for files, on a file that is there as long as the engine may read it."""
    from labelchef.model.engines.streaming import StreamingEngine
    from labelchef.model.features import open_features

    path = Path(tempfile.mkdtemp(prefix="labelchef-test-")) / "x.npy"
    np.save(path, X)
    engine = StreamingEngine(open_features(path), bias=bias, **settings)
    weakref.finalize(engine, shutil.rmtree, path.parent, ignore_errors=True)
    return engine


ENGINES: dict[str, Callable[..., Engine]] = {"memory": MemoryEngine, "torch": torch_engine, "disk": disk_engine}
"""Name → makes the engine of an array; every test with `make_engine` runs on each of them."""


@pytest.fixture(params=[*ENGINES, "dask"])
def make_engine(request: pytest.FixtureRequest) -> Callable[..., Engine]:
    """Where features lie: once for each engine."""
    if request.param == "dask":
        from labelchef.model.engines.cluster import ClusterEngine

        return partial(ClusterEngine, cluster=request.getfixturevalue("cluster"))
    return ENGINES[request.param]


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
