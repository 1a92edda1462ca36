"""A cluster of real processes: selections equal those of one process, whatever is killed; errors that say what to do."""

import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torture.workers import Killer, rounds_of

from labelchef import EngineSettings, LabelCleaner
from labelchef.base.cluster_address import ADDRESS
from labelchef.base.errors import InvalidInputError
from labelchef.base.version import __version__
from labelchef.chef.choice import ALL_SELECTORS
from labelchef.data.encoders.cache import RowCache, key_of
from labelchef.model.contrasts import contrast
from labelchef.model.engines import MemoryEngine, RowLabels, choice
from labelchef.model.engines.cluster import ClusterEngine, ClusterError, dask_workers
from labelchef.model.engines.cluster.dask_workers import DaskWorkers, local_cluster
from labelchef.model.engines.cluster.parts import cut_rows, open_part, shared_out
from labelchef.model.engines.cluster.sums import added, rounded
from labelchef.model.features import open_features
from labelchef.model.labels import LabelTable
from tests.oracles import cleaner_of, make_problem


def setting(rng: np.random.Generator, n: int = 1500, d: int = 5, C: int = 3) -> tuple[Any, RowLabels, Any, Any]:
    X = rng.normal(size=(n, d)).astype(np.float32)
    W, V = rng.normal(size=(2, d + 1, C))
    return X, RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n)), contrast(W), contrast(V)


def everything(engine: Any, labels: RowLabels, W: Any, V: Any) -> list[Any]:
    """What a round does, operation by operation."""
    n = engine.n_rows
    eligible = np.arange(n) % 7 > 0
    one = engine.sweep(labels, W=W, V=V, gradient=True, hessian_product=True, roughly=True)
    two = engine.sweep(labels, W=0.9 * W, gradient=True)
    moved = one.logits + 0.3 * (two.logits - one.logits)
    three = engine.sweep(labels, logits=moved, V=V, hessian_product=True)
    S = engine.zeros(len(W)) + 0.7 * three.products
    h, Q = engine.row_curvature(labels, moved)
    worth, influence, label = engine.expected_scores(moved, S, labels, eligible, 0.2, 1.0)
    found = engine.shortlist(worth, 12, 1e-6, label, influence)
    some = np.array([n - 1, 3, n // 2, 3])
    return [
        one.gradient, one.hessian_product, two.loss, three.hessian_product, Q, engine.gram(h), engine.gram(h, 5),
        engine.total(h), engine.along(labels, moved, S, 0.4), found.rows, found.scores, found.others[0], found.scale,
        engine.host(moved[some]), engine.host(S), engine.hessian(labels, moved), engine.rows(some),
        engine.gradient_of_rows(some, labels, W), engine.host(engine.row_squares()), engine.scores_of(some, moved, S, labels)[0],
        engine.lowest(worth, 5), engine.host(worth),
    ]  # fmt: skip


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def alone() -> Iterator[DaskWorkers]:
    """A cluster of one process."""
    with local_cluster(workers=1) as processes:
        workers = DaskWorkers(processes.scheduler_address)
        yield workers
        workers.close()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Any]:
    """A cluster whose processes may be killed."""
    with local_cluster(workers=2) as processes:
        yield processes


def kill(processes: Any) -> None:
    """Kill one of the workers that hold parts."""
    known = processes.scheduler.workers
    os.kill(next(one.pid for one in processes.workers.values() if one.worker_address in known), signal.SIGKILL)


def test_results_do_not_depend_on_the_number_of_workers_nor_on_who_dies(
    rng: np.random.Generator, alone: DaskWorkers, mortal: Any
) -> None:
    X, labels, W, V = setting(rng)
    one = everything(ClusterEngine(X, bias=True, cluster=alone), labels, W, V)
    plain = everything(MemoryEngine(X, bias=True), labels, W, V)
    for found, expected in zip(one, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    workers = DaskWorkers(mortal.scheduler_address)
    engine = ClusterEngine(X, bias=True, cluster=workers)
    assert same(everything(engine, labels, W, V), one)
    logits = engine.sweep(labels, W=W).logits
    product = engine.sweep(labels, logits=logits, V=V, hessian_product=True).hessian_product
    kill(mortal)  # with its parts, labels and logits
    np.testing.assert_array_equal(
        engine.sweep(labels, logits=logits, V=V, hessian_product=True).hessian_product, product
    )
    assert same(everything(engine, labels, W, V), one)
    workers.close()


def test_labels_follow_the_table(rng: np.random.Generator, cluster: DaskWorkers) -> None:
    X, _, W, _ = setting(rng)
    table = LabelTable(rng.dirichlet(np.ones(3), len(X)), 0.7)
    engine, plain = ClusterEngine(X, bias=True, cluster=cluster), MemoryEngine(X, bias=True)

    def check(labels: RowLabels = table.rows) -> None:
        found, expected = (np.asarray(one.sweep(labels, W=W, gradient=True).gradient) for one in (engine, plain))
        np.testing.assert_allclose(found, expected, atol=1e-10)

    check()
    table.assign(np.array([3, 1499]), np.array([2, 0]))
    check()
    table.believe(rng.dirichlet(np.ones(3), len(X)), np.full(len(X), 0.2), None)
    check()
    for _ in range(4):  # more label sets than workers keep
        check(RowLabels(rng.dirichlet(np.ones(3), len(X)), rng.uniform(0, 1, len(X))))
    check()


def test_files_are_opened_where_they_are(rng: np.random.Generator, tmp_path: Path, cluster: DaskWorkers) -> None:
    X, labels, W, V = setting(rng)
    np.save(tmp_path / "x.npy", X)
    features = open_features(tmp_path / "x.npy")
    plain = everything(ClusterEngine(X, bias=True, cluster=cluster), labels, W, V)
    assert same(everything(ClusterEngine(features, bias=True, cluster=cluster), labels, W, V), plain)
    (tmp_path / "x.npy").rename(tmp_path / "away.npy")
    engine = ClusterEngine(features, bias=True, cluster=cluster)
    with pytest.raises(ClusterError, match=r"worker tcp://.* failed \(opening rows .* of .*x\.npy\): .*Bring the file"):
        engine.sweep(labels, W=W)
    (tmp_path / "away.npy").rename(tmp_path / "x.npy")
    engine.sweep(labels, W=W)
    np.save(tmp_path / "x.npy", X[:, :4])
    with pytest.raises(InvalidInputError, match="has changed while it is used: it has 24128 bytes, and had 30128"):
        ClusterEngine(features, bias=True, cluster=cluster).sweep(labels, W=W)


def test_a_file_that_differs_on_a_worker_is_refused(
    rng: np.random.Generator, cluster: DaskWorkers, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", setting(rng)[0])
    given = 0, open_features(tmp_path / "x.npy"), "another digest", ("auto", None, True), 1.0
    with pytest.raises(ClusterError, match=r"rows 0 to 1500 of .*it holds other numbers there than here"):
        cluster.results([cluster.task(open_part, *given)])


def test_parts_are_shared_out_by_power() -> None:
    cuts = cut_rows(100_000, 8)
    assert len(cuts) == 64
    assert cuts[-1][1] == 100_000
    owners = shared_out(64, {}, {"a": 3.0, "b": 1.0})
    assert list(owners.values()).count("a") == 48
    joined = shared_out(64, owners, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert 21 <= list(joined.values()).count("c") <= 22
    assert sum(joined[n] != owners[n] and owners[n] == "b" for n in owners) == 0, "only who has too many gives"


def test_large_sums_do_not_depend_on_their_order(rng: np.random.Generator) -> None:
    parts = [rng.normal(size=(9, 9)) * 10.0 ** rng.integers(-6, 6) for _ in range(40)]
    totals = []
    for seed in range(5):
        order, groups = np.random.default_rng(seed).permutation(40), [dict[int, Any]() for _ in range(1 + seed)]
        for place, part in enumerate(order):
            rounded(parts[part], groups[place % len(groups)])
        totals.append(added(groups))
    assert all(np.array_equal(total, totals[0]) for total in totals)
    np.testing.assert_allclose(totals[0], np.sum(parts, axis=0), rtol=1e-12, atol=1e-8)


def test_an_engine_survives_a_pickle(rng: np.random.Generator, cluster: DaskWorkers) -> None:
    X, labels, W, _ = setting(rng)
    engine = ClusterEngine(X, bias=True, cluster=cluster.address, more=X[:20])
    wider = RowLabels(np.vstack([labels.Y, labels.Y[:20]]), np.append(labels.weight, np.ones(20)))
    one = engine.sweep(wider, W=W, gradient=True)
    again = pickle.loads(pickle.dumps(engine))
    np.testing.assert_array_equal(again.sweep(wider, logits=one.logits, gradient=True).gradient, one.gradient)


def fitted(problem: Any, **settings: Any) -> LabelCleaner:
    y_val = problem.Y_val.argmax(axis=1)
    cleaner = cleaner_of(budget=None, tol=1e-5, **settings)
    return cleaner.fit(problem.X[:, :-1], problem.Y, X_val=problem.X_val[:, :-1], y_val=y_val)


@pytest.mark.parametrize("selector", sorted(ALL_SELECTORS))
def test_every_selector_chooses_what_it_chooses_in_memory(
    rng: np.random.Generator, cluster: DaskWorkers, selector: str
) -> None:
    problem = make_problem(rng, n=600, d=5, C=3, spread=0.7)
    truth = problem.Y.argmax(axis=1)
    one = fitted(problem, selector=selector, engine="memory")
    two = fitted(problem, selector=selector, engine=EngineSettings("dask", cluster=cluster.address))
    for _ in range(2):
        batches = [cleaner.query() for cleaner in (one, two)]
        np.testing.assert_array_equal(batches[0].indices, batches[1].indices)
        np.testing.assert_array_equal(batches[0].suggested, batches[1].suggested)
        for cleaner in (one, two):
            cleaner.update(batches[0].indices, truth[batches[0].indices])
    np.testing.assert_allclose(two.W_, one.W_, atol=1e-7)
    assert {"lag", "slowest_worker"} <= set(two.history_.columns) - set(one.history_.columns)


@pytest.mark.slow
def test_workers_that_are_killed_change_no_selection(mortal: Any) -> None:
    kills, seed = 0, 0
    while kills < 20:
        before, W, _ = rounds_of(mortal.scheduler_address, "expected_infl", seed, 2)
        killer = Killer(mortal, np.random.default_rng(seed), 0.3, 20 - kills)
        killer.start()
        while not killer.kills:
            after, W_after, _ = rounds_of(mortal.scheduler_address, "expected_infl", seed, 2)
            assert after == before
            np.testing.assert_array_equal(W_after, W)
        killer.stop()
        kills, seed = kills + killer.kills, seed + 1


def test_a_worker_that_stops_for_a_while_is_waited_for(rng: np.random.Generator, mortal: Any) -> None:
    X, labels, W, _ = setting(rng)
    workers = DaskWorkers(mortal.scheduler_address)
    engine = ClusterEngine(X, bias=True, cluster=workers)
    before = engine.sweep(labels, W=W, gradient=True).gradient
    pid = next(iter(mortal.workers.values())).pid
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.5, os.kill, (pid, signal.SIGCONT)).start()
    np.testing.assert_array_equal(engine.sweep(labels, W=W, gradient=True).gradient, before)
    workers.close()


def test_other_versions_are_refused(
    rng: np.random.Generator, cluster: DaskWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels, W, _ = setting(rng)
    mine = dask_workers.own_versions().replace(__version__, "0.0.1")
    monkeypatch.setattr(dask_workers, "own_versions", lambda: mine)
    with pytest.raises(
        ClusterError, match=r"worker tcp://.* runs .*labelchef 0\.\d.*, and this process .*labelchef 0\.0\.1; exp"
    ):
        ClusterEngine(X, bias=True, cluster=cluster).sweep(labels, W=W)


@pytest.mark.parametrize("address", ["nowhere", "http://127.0.0.1:1"])
def test_an_address_where_nobody_is(address: str) -> None:
    with pytest.raises(InvalidInputError, match=r"no cluster answers at .*dask scheduler") as caught:
        DaskWorkers(address)
    assert caught.value.code == "cluster"


def test_a_port_that_does_not_answer_is_told_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_workers, "_CONNECT_SECONDS", 0.5)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(InvalidInputError, match="no cluster answers at"):
            DaskWorkers(f"tcp://127.0.0.1:{mute.getsockname()[1]}")


def test_engine_dask_needs_an_address(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    with pytest.raises(InvalidInputError, match="engine is 'dask' and no cluster is known; expected an address"):
        fitted(make_problem(rng, n=50), engine="dask")
    X = np.zeros((10, 3))
    assert choice.choose_placement("auto", None, X, "tcp://a:1").cluster == "tcp://a:1"
    monkeypatch.setenv(ADDRESS, "tcp://b:1")
    assert choice.choose_placement("dask", None, X).cluster == "tcp://b:1"
    assert choice.choose_placement("auto", None, X).cluster is None, "too small to be worth it"
    assert choice.choose_placement("memory", None, X).cluster is None


def _lengths(texts: list[str], where: Path) -> np.ndarray:
    """A stand-in for a network: three numbers a text; writes down which process did it."""
    (where / f"{os.getpid()}-{texts[0]}").touch()
    return np.array([[len(text), len(text) ** 2, 1.0] for text in texts], dtype=np.float32)


def _broken(texts: list[str], where: Path) -> np.ndarray:
    if os.getpid() != int((where / "driver").read_text()):
        raise RuntimeError("no such network here")
    return _lengths(texts, where)


@pytest.mark.parametrize("encode", [_lengths, _broken])
def test_chunks_are_encoded_by_the_workers_or_here(
    tmp_path: Path, cluster: DaskWorkers, monkeypatch: pytest.MonkeyPatch, encode: Callable[..., np.ndarray]
) -> None:
    """The rows are the same, in their order, whoever has encoded them; the cache has them."""
    monkeypatch.setattr("labelchef.data.encoders.cache.CHUNK", 4)
    texts = ["x" * (1 + k % 17) for k in range(60)]
    (tmp_path / "driver").write_text(str(os.getpid()))
    keys, sizes = [key_of(text.encode()) for text in texts], [len(text) for text in texts]

    def away(rows: list[int]) -> Callable[[], np.ndarray]:
        return partial(encode, [texts[k] for k in rows], tmp_path)

    plain = RowCache(None, "lengths", 3).encoded(keys, sizes, lambda rows: away(rows)(), "encoding")
    here = {path.name.partition("-")[0] for path in tmp_path.glob("*-x*")}
    assert here == {str(os.getpid())}
    monkeypatch.setenv("LABELCHEF_CLUSTER", cluster.address)
    kept = RowCache(tmp_path / "cache", "lengths", 3)
    np.testing.assert_array_equal(kept.encoded(keys, sizes, lambda rows: away(rows)(), "encoding", away=away), plain)
    who = {path.name.partition("-")[0] for path in tmp_path.glob("*-x*")}
    assert (len(who) > 1) == (encode is _lengths)
    never = kept.encoded(keys, sizes, lambda rows: pytest.fail("all rows are in the cache"), "encoding")
    np.testing.assert_array_equal(never, plain)


@pytest.mark.gpu
def test_workers_compute_on_their_gpu(gpu: str, rng: np.random.Generator, cluster: DaskWorkers) -> None:
    """The rows lie on the GPU of each worker, and everything is as in memory."""
    X = rng.normal(size=(3000, 12)).astype(np.float32)
    labels = RowLabels(rng.dirichlet(np.ones(3), 3000), rng.uniform(0.2, 1.0, 3000))
    W, V = rng.normal(size=(2, 2, 13))
    given: dict[str, Any] = {"W": W, "V": V, "gradient": True, "hessian_product": True}
    one: Any = MemoryEngine(X, bias=True).sweep(labels, **given)
    engine = ClusterEngine(X, bias=True, cluster=cluster, engine="cuda")
    two: Any = engine.sweep(labels, **given)
    np.testing.assert_allclose(two.gradient, one.gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(two.hessian_product, one.hessian_product, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(engine.host(two.logits), one.logits, rtol=1e-9, atol=1e-9)
    eligible = np.ones(3000, dtype=bool)
    best, _ = engine.scores(two.logits, two.products, labels, eligible)
    plain, _ = MemoryEngine(X, bias=True).scores(one.logits, one.products, labels, eligible)
    np.testing.assert_allclose(engine.host(best), plain, rtol=1e-7, atol=1e-7)
