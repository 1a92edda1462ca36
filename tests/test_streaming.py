"""The engine for files: widening, sums that depend on the shapes only, sketched factors with proven solutions, reads, errors."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef import LabelCleaner
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import Settings
from labelchef.base.stopping_work import StoppedWorkError, stoppable
from labelchef.chef.constructors import make_constructor
from labelchef.data.campaign_data import find_files, read_files
from labelchef.loop import clean as service
from labelchef.loop.start import new_session
from labelchef.model.contrasts import contrast
from labelchef.model.curvature import CurvatureKeeper, freeze
from labelchef.model.engines import MemoryEngine, RowLabels, choice, kernels
from labelchef.model.engines.streaming import StreamingEngine
from labelchef.model.features import ArrayFeatures, Features, open_features
from labelchef.model.leave_one_out import leave_one_out_logits
from labelchef.model.objective import Objective
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.campaigns.trained import data_of
from labelchef.server.workspace import open_workspace
from tests.oracles import cleaner_of


def on_disk(folder: Path, X: np.ndarray) -> Features:
    np.save(folder / "x.npy", X)
    return open_features(folder / "x.npy")


def labelled(rng: np.random.Generator, n: int, C: int) -> RowLabels:
    return RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n))


class TestWidening:
    def test_all_float16_numbers_bit_by_bit(self) -> None:
        every = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
        wide = np.empty((256, 256), dtype=np.float32)
        kernels.widen_rows(every, 0, 256, wide)
        np.testing.assert_array_equal(wide.view(np.uint32), every.view(np.float16).astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
@pytest.mark.parametrize("C", [2, 4])
def test_it_computes_what_memory_computes(rng: np.random.Generator, tmp_path: Path, kind: str, C: int) -> None:
    n, d, m = 1500, 33, 40
    X = rng.normal(size=(n, d)).astype(kind)
    features, labels, more = on_disk(tmp_path, X), labelled(rng, n + m, C), rng.normal(size=(m, d))
    wide = ArrayFeatures(X).take(np.arange(n))
    W, V = (contrast(one) for one in rng.normal(size=(2, d + 1, C)))
    oracle = MemoryEngine(wide, bias=True, more=more)
    engines = [
        StreamingEngine(features, bias=True, more=more),
        StreamingEngine(features, bias=True, more=more, block_rows=512),
        MemoryEngine(ArrayFeatures(X), bias=True, more=more),
    ]
    few, h = np.array([3, n + 5, n - 1, 3, 0, n + m - 1]), rng.uniform(0, 1, n + m)
    batch = rng.permutation(n + m)[:700]
    for engine in engines:
        for roughly in (False, True):
            what: Any = {"W": W, "V": V, "gradient": True, "hessian_product": True, "roughly": roughly}
            found: Any = engine.sweep(labels, **what)
            expected: Any = oracle.sweep(labels, **what)
            close: Any = {"rtol": 1e-10, "atol": 1e-10} if not roughly else {"rtol": 1e-4, "atol": 1e-3}
            np.testing.assert_allclose(found.logits, expected.logits, **close)
            np.testing.assert_allclose(found.products, expected.products, **close)
            np.testing.assert_allclose(found.gradient, expected.gradient, **close)
            np.testing.assert_allclose(found.hessian_product, expected.hessian_product, **close)
            assert found.loss == pytest.approx(expected.loss, rel=1e-6)
        np.testing.assert_array_equal(engine.rows(few), oracle.rows(few))
        np.testing.assert_allclose(engine.row_squares(), oracle.row_squares(), rtol=1e-12)
        np.testing.assert_allclose(engine.gram(h), oracle.gram(h), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(
            engine.gradient_of_rows(batch, labels, W), oracle.gradient_of_rows(batch, labels, W), rtol=1e-9, atol=1e-9
        )
    same = [engine.sweep(labels, W=W, gradient=True).gradient for engine in engines[:2]]
    np.testing.assert_array_equal(same[0], same[1], err_msg="what is read at a time plays no part")


def test_sums_do_not_depend_on_threads(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = on_disk(tmp_path, rng.normal(size=(9000, 20)).astype("float16")), labelled(rng, 9000, 3)
    W, found = contrast(rng.normal(size=(21, 3))), []
    for threads in ("1", "3"):
        monkeypatch.setenv("LABELCHEF_THREADS", threads)
        found.append(StreamingEngine(features, bias=True, block_rows=2048).sweep(labels, W=W, gradient=True))
    np.testing.assert_array_equal(found[0].gradient, found[1].gradient)
    assert found[0].loss == found[1].loss


def test_it_can_be_pickled(rng: np.random.Generator, tmp_path: Path) -> None:
    features, labels = on_disk(tmp_path, rng.normal(size=(300, 5)).astype("float32")), labelled(rng, 310, 2)
    engine = StreamingEngine(features, bias=False, more=rng.normal(size=(10, 5)))
    W = contrast(rng.normal(size=(5, 2)))
    before = engine.sweep(labels, W=W, gradient=True)
    after = pickle.loads(pickle.dumps(engine)).sweep(labels, W=W, gradient=True)
    np.testing.assert_array_equal(before.gradient, after.gradient)


def test_passes_bytes_and_seconds_are_counted(rng: np.random.Generator, tmp_path: Path) -> None:
    features, labels = on_disk(tmp_path, rng.normal(size=(700, 8)).astype("float16")), labelled(rng, 700, 2)
    engine = StreamingEngine(features, bias=True)
    W = contrast(rng.normal(size=(9, 2)))
    before = engine.spent()
    for _ in range(3):
        engine.sweep(labels, W=W, gradient=True)
    engine.rows(np.arange(70))
    spent = engine.spent().since(before)
    assert (spent.sweeps, spent.bytes_read) == (3.1, 3 * features.nbytes)
    assert [one.bytes for one in engine.passes] == [features.nbytes] * 3
    assert all(0.0 <= one.waited <= one.seconds for one in engine.passes)
    assert spent.read_seconds == pytest.approx(sum(one.seconds for one in engine.passes))


class TestSketch:
    """A factor of a part of the rows, and what is proven all the same."""

    N, D = 20_000, 24

    def problem(self, rng: np.random.Generator, C: int) -> tuple[np.ndarray, RowLabels]:
        y = rng.integers(0, C, self.N)
        X = rng.normal(size=(self.N, self.D)) * np.linspace(2.0, 0.2, self.D) + 0.5 * np.eye(C, self.D)[y]
        labels = RowLabels(0.2 / C + 0.8 * np.eye(C)[y], np.full(self.N, 0.7))
        return X.astype(np.float32), labels

    def engine(self, X: np.ndarray, folder: Path, monkeypatch: pytest.MonkeyPatch) -> StreamingEngine:
        monkeypatch.setattr(StreamingEngine, "factor_share", 0.03)
        engine = StreamingEngine(on_disk(folder, X), bias=True)
        assert engine.factor_step == 10, "a tenth of the rows"
        return engine

    @pytest.mark.parametrize("C", [2, 3])
    def test_the_first_model_is_the_same_after_few_sweeps(
        self, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, C: int
    ) -> None:
        X, labels = self.problem(rng, C)
        engine, newton = self.engine(X, tmp_path, monkeypatch), make_constructor("newton", tol=1e-6)
        made = [
            newton.initialise(Objective(one, labels, 1e-3), lambda W: np.zeros(len(W)))
            for one in (MemoryEngine(X, bias=True), engine)
        ]
        for one in made:
            assert one.diagnostics.converged
            assert one.diagnostics.gradient_norm <= one.diagnostics.tolerance, "proven by a sweep over all rows"
        np.testing.assert_allclose(made[1].point.W, made[0].point.W, atol=2e-6 * float(np.linalg.norm(made[0].point.W)))
        assert made[1].diagnostics.sweeps <= made[0].diagnostics.sweeps + 3
        assert len(engine.passes) == int(made[1].diagnostics.sweeps), "no pass but the sweeps"
        assert made[1].keeper.factor.sampled
        assert not made[1].keeper.factor.exact

    def test_a_refresh_reads_a_part_of_the_rows(
        self, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, labels = self.problem(rng, 2)
        engine = self.engine(X, tmp_path, monkeypatch)
        objective = Objective(engine, labels, 1e-3)
        point = objective.at(np.zeros(objective.shape))
        keeper = CurvatureKeeper(freeze(objective, point.logits))
        before, passes = engine.sweeps, len(engine.passes)
        keeper.refresh(objective, point.logits)
        assert engine.sweeps - before == pytest.approx(0.1)
        assert len(engine.passes) == passes
        keeper.waste = 4.1
        assert keeper.due(objective), "it costs little"
        exact = freeze(Objective(MemoryEngine(X, bias=True), labels, 1e-3), point.logits)
        np.testing.assert_allclose(keeper.factor.g, exact.g, rtol=0.3)

    def test_rows_are_sampled_in_runs_evenly(
        self, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, _ = self.problem(rng, 2)
        engine = self.engine(X, tmp_path, monkeypatch)
        rows = engine._sampled(10)
        assert len(rows) == pytest.approx(self.N / 10, rel=0.01)
        assert rows.max() > 0.98 * self.N
        h = rng.uniform(0, 1, self.N)
        assert engine.total(h, 10) == pytest.approx(h[rows].sum())
        dense = np.hstack([X, np.ones((self.N, 1))])[rows]
        np.testing.assert_allclose(engine.gram(h, 10), dense.T @ (h[rows, None] * dense), rtol=1e-4, atol=1e-2)
        estimated = engine.estimated_gram(h, 10)
        assert np.trace(estimated) == pytest.approx(np.trace(engine.gram(h)), rel=0.05)

    @pytest.mark.parametrize("C", [2, 3])
    def test_leaving_one_out_makes_no_gram_pass(
        self, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, C: int
    ) -> None:
        X, labels = self.problem(rng, C)
        engine, rows = self.engine(X, tmp_path, monkeypatch), np.arange(40)
        newton = make_constructor("newton", tol=1e-6)
        found = []
        for one in (MemoryEngine(X, bias=True), engine):
            objective = Objective(one, labels, 1e-3)
            point = newton.initialise(objective, lambda W: np.zeros(len(W))).point
            passes = len(engine.passes)
            held = leave_one_out_logits(objective, point, rows)
            assert len(engine.passes) == passes
            found.append(held - held.mean(axis=1, keepdims=True))
        np.testing.assert_allclose(found[1], found[0], atol=5e-3)


class TestCampaigns:
    N, n, C = 900, 60, 3

    def data(self, rng: np.random.Generator) -> dict[str, Any]:
        y = rng.integers(0, self.C, self.N + self.n)
        X = (rng.normal(size=(self.N + self.n, 12)) + 0.9 * np.eye(self.C, 12)[y]).astype(np.float16)
        votes = np.where(rng.random((self.N, 5)) < 0.65, y[: self.N, None], rng.integers(0, self.C, (self.N, 5)))
        return {
            "X": X[: self.N],
            "y": y[: self.N],
            "votes": votes,
            "X_val": X[self.N :].astype(np.float32),
            "y_val": y[self.N :],
        }

    def fitted(self, data: dict[str, Any], X: Any, engine: str) -> LabelCleaner:
        cleaner = cleaner_of(engine=engine, budget=None, batch_size=15, tol=1e-6)
        return cleaner.fit(X, votes=data["votes"], X_val=data["X_val"], y_val=data["y_val"], classes=[0, 1, 2])

    def test_the_same_selections_from_a_path_as_from_memory(self, rng: np.random.Generator, tmp_path: Path) -> None:
        data = self.data(rng)
        on_disk(tmp_path, data["X"])
        one = self.fitted(data, data["X"], "memory")
        two = self.fitted(data, str(tmp_path / "x.npy"), "disk")
        assert isinstance(one._session.objective.engine, MemoryEngine)
        assert isinstance(two._session.objective.engine, StreamingEngine)
        for _ in range(3):
            batches = [cleaner.query() for cleaner in (one, two)]
            np.testing.assert_array_equal(batches[0].indices, batches[1].indices)
            np.testing.assert_array_equal(batches[0].suggested, batches[1].suggested)
            for cleaner in (one, two):
                cleaner.update(batches[0].indices, data["y"][batches[0].indices])
        np.testing.assert_allclose(two.W_, one.W_, atol=1e-5)
        assert "gb_read" not in one.history_.columns
        assert (two.history_["gb_read"] > 0).all()
        assert (two.history_["seconds_reading"] > 0).all()
        np.testing.assert_allclose(
            two.finish().predict_proba(data["X_val"]), one.finish().predict_proba(data["X_val"]), atol=1e-5
        )

    def test_auto_streams_what_is_larger_than_half_of_the_free_memory(
        self, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = self.data(rng)
        features = on_disk(tmp_path, data["X"])
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        given = {"array": data["X"], "map": mapped, "features": features, "view": np.asarray(mapped)[100:]}
        for free, streamed in ((2 * data["X"].nbytes, ()), (data["X"].nbytes, ("map", "features", "view"))):
            monkeypatch.setattr(choice, "free_memory", lambda free=free: free)
            for name, X in given.items():
                assert choice.choose_placement("auto", None, X).streamed == (name in streamed), (name, free)
        engine = self.fitted(data, mapped, "auto")._session.objective.engine
        assert isinstance(engine, StreamingEngine)
        assert engine._X.what == str(tmp_path / "x.npy")

    def test_a_file_that_changes_stops_the_campaign_and_repaired_it_goes_on(
        self, rng: np.random.Generator, tmp_path: Path
    ) -> None:
        data = self.data(rng)
        path = on_disk(tmp_path, data["X"]).what
        cleaner = self.fitted(data, path, "disk")
        batch, facts = cleaner.query(), os.stat(path)
        Path(path).rename(tmp_path / "away.npy")
        with pytest.raises(InvalidInputError, match="cannot be read: No such file"):
            cleaner.update(batch.indices, data["y"][batch.indices])
        (tmp_path / "away.npy").rename(path)
        Path(path).touch()
        with pytest.raises(InvalidInputError, match="has changed while it is used"):
            cleaner.update(batch.indices, data["y"][batch.indices])
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        cleaner.update(batch.indices, data["y"][batch.indices])
        assert int(cleaner.cleaned_.sum()) == len(batch.indices)

    def test_not_finite_is_refused_by_row_and_column(self, rng: np.random.Generator, tmp_path: Path) -> None:
        data = self.data(rng)
        data["X"][700, 4] = np.nan
        features = on_disk(tmp_path, data["X"])
        for X in (features, np.load(tmp_path / "x.npy", mmap_mode="r")):
            with pytest.raises(InvalidInputError, match=r"X\[700, 4\] is nan"):
                self.fitted(data, X, "disk")
        labels = labelled(rng, self.N, 2)
        with pytest.raises(InvalidInputError, match=r"x\.npy\[700, 4\] is nan"):  # a sweep sees it, too
            StreamingEngine(features, bias=True).sweep(labels, W=np.zeros((1, 13)), gradient=True)

    def test_a_sweep_can_be_stopped(self, rng: np.random.Generator, tmp_path: Path) -> None:
        features, labels, asked = (
            on_disk(tmp_path, rng.normal(size=(9000, 20)).astype("float32")),
            labelled(rng, 9000, 2),
            [],
        )
        engine = StreamingEngine(features, bias=True, block_rows=512)

        def stop() -> bool:
            asked.append(1)
            return len(asked) > 5

        with stoppable(stop), pytest.raises(StoppedWorkError):
            engine.sweep(labels, W=np.zeros((1, 21)), gradient=True)
        assert engine.sweeps == 0


class TestServices:
    """`labelchef clean` and campaigns of a workspace: X stays in its files."""

    def files(self, folder: Path, rng: np.random.Generator, X: np.ndarray, *, shards: bool) -> np.ndarray:
        n, y = len(X), rng.integers(0, 2, len(X))
        X += 2.0 * (y[:, None] == 1)
        if shards:
            (folder / "features").mkdir()
            np.save(folder / "features" / "a.npy", X[:100])
            np.save(folder / "features" / "b.npy", X[100:])
        else:
            np.save(folder / "features.npy", X)
        np.save(folder / "weak.npy", 0.6 * np.eye(2)[y] + 0.2)
        np.save(folder / "val_features.npy", X[:60].astype(np.float32))
        np.save(folder / "val_labels.npy", y[:60])
        assert n > 100
        return y

    @pytest.mark.parametrize("shards", [True, False])
    def test_a_whole_campaign_from_files(self, rng: np.random.Generator, tmp_path: Path, shards: bool) -> None:
        y = self.files(tmp_path, rng, rng.normal(size=(400, 6)).astype("float16"), shards=shards)
        data = read_files(find_files(tmp_path))
        answers = service.Answers(truth=[str(one) for one in y], error_rate=0.0)
        made = {}
        for engine in ("memory", "disk"):
            settings = Settings(engine=engine, budget=20, people=1, suggestion_votes=False)
            made[engine] = service.clean(data, answers, settings, tmp_path / engine, report=False)
        one, two = (pd.read_csv(tmp_path / engine / "cleaned_labels.csv") for engine in made)
        pd.testing.assert_frame_equal(one, two)
        assert (made["disk"].history["gb_read"] > 0).all()
        digests = [(tmp_path / engine / "ledger.jsonl").read_text().splitlines()[1] for engine in made]
        assert '"features"' in digests[0]
        assert digests[0].split('"hash"')[0] == digests[1].split('"hash"')[0]

    @pytest.mark.parametrize("shards", [True, False])
    def test_a_campaign_of_a_workspace_streams_its_own_copy(
        self, rng: np.random.Generator, tmp_path: Path, shards: bool
    ) -> None:
        X = rng.normal(size=(400, 6)).astype("float16")
        (tmp_path / "files").mkdir()
        self.files(tmp_path / "files", rng, X, shards=shards)
        with open_workspace(tmp_path / "home", None) as ws:
            settings = Settings(engine="disk", budget=20)
            made = create_campaign(ws, "Streamed", find_files(tmp_path / "files"), settings, "lead")
            row = find(ws, made.slug)
            data = data_of(ws, row)
            np.testing.assert_array_equal(np.asarray(data.X), X)
            engine = new_session(data, row.settings).objective.engine
            assert isinstance(engine, StreamingEngine)
            assert str(tmp_path / "home") in engine._X.what
