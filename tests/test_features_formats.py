"""Features in folders of shards, Parquet, Arrow and at URLs: all hold what one .npy file holds."""

import functools
import http.server
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelchef.base.errors import InvalidInputError
from labelchef.model.engines.streaming import StreamingEngine
from labelchef.model.features import ArrayFeatures, Features, is_streamed, open_features
from labelchef.model.features.npy import RawFeatures
from labelchef.model.features.shards import ShardedFeatures, shard_names
from labelchef.server.store.arrays import read_array, write_array

N, D = 700, 9
Write = Callable[[Path, np.ndarray], str]


def matrix(dtype: str = "float16") -> np.ndarray:
    return np.random.default_rng(3).normal(size=(N, D)).astype(dtype)


def npy_shards(folder: Path, X: np.ndarray) -> str:
    target = folder / "x"
    target.mkdir()
    for k, (a, b) in enumerate(((0, 100), (100, 101), (101, N))):
        np.save(target / f"part-{k:05d}-of-00003.npy", X[a:b])
    return str(target)


def table(X: np.ndarray) -> Any:
    pa = pytest.importorskip("pyarrow")
    values = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    return pa.table({"id": np.arange(len(X)), "features": values})


def parquet(folder: Path, X: np.ndarray) -> str:
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(table(X), folder / "x.parquet", row_group_size=150)
    return str(folder / "x.parquet")


def parquet_shards(folder: Path, X: np.ndarray) -> str:
    pq = pytest.importorskip("pyarrow.parquet")
    (folder / "x").mkdir()
    for k, (a, b) in enumerate(((0, 300), (300, N))):
        pq.write_table(table(X[a:b]), folder / "x" / f"{k}.parquet", row_group_size=130)
    return str(folder / "x")


def arrow(folder: Path, X: np.ndarray, compression: str | None = None) -> str:
    pa = pytest.importorskip("pyarrow")
    made, path = table(X), folder / "x.arrow"
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, made.schema, options=options) as writer:
        writer.write_table(made, max_chunksize=160)
    return str(path)


def in_memory(folder: Path, X: np.ndarray) -> str:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{folder.name}/x.npy"
    with fsspec.open(url, "wb") as stream:
        np.save(stream, X)
    return url


def shards_in_memory(folder: Path, X: np.ndarray) -> str:
    fsspec = pytest.importorskip("fsspec")
    for k, (a, b) in enumerate(((0, 222), (222, N))):
        with fsspec.open(f"memory://{folder.name}/shards/{k}.npy", "wb") as stream:
            np.save(stream, X[a:b])
    return f"memory://{folder.name}/shards"


def parquet_in_memory(folder: Path, X: np.ndarray) -> str:
    fsspec, path = pytest.importorskip("fsspec"), Path(parquet(folder, X))
    url = f"memory://{folder.name}/x.parquet"
    with fsspec.open(url, "wb") as stream:
        stream.write(path.read_bytes())
    return url


FORMS: dict[str, Write] = {
    "npy shards": npy_shards,
    "parquet": parquet,
    "parquet shards": parquet_shards,
    "arrow": arrow,
    "arrow, compressed": functools.partial(arrow, compression="lz4"),
    "memory://": in_memory,
    "memory:// shards": shards_in_memory,
    "memory:// parquet": parquet_in_memory,
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Write:
    return FORMS[request.param]


def test_every_form_holds_the_same_rows(form: Write, tmp_path: Path) -> None:
    X = matrix()
    features = open_features(form(tmp_path, X))
    assert features.shape == (N, D)
    assert features.dtype == X.dtype
    for rows in (None, 64):
        found = [(first, block.copy()) for first, block in features.blocks(rows=rows)]
        np.testing.assert_array_equal(np.concatenate([block for _, block in found]), X)
        assert [first for first, _ in found] == np.cumsum([0, *(len(block) for _, block in found)])[:-1].tolist()
        assert rows is None or max(len(block) for _, block in found) <= rows
    some = np.array([699, 0, 100, 101, 99, 99, 350])
    np.testing.assert_array_equal(features.take(some), X[some].astype(np.float32))
    part = pickle.loads(pickle.dumps(features.part(95, 405)))
    np.testing.assert_array_equal(part.take([0, 309]), X[[95, 404]].astype(np.float32))
    np.testing.assert_array_equal(np.concatenate([block for _, block in part.blocks(3, 300)]), X[98:395])
    assert features.identity == open_features(features.what).identity
    np.testing.assert_array_equal(features.loaded().array, X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_types_in_columns(tmp_path: Path, dtype: str) -> None:
    X = matrix() * 20
    X = X.astype(dtype)
    for write in (parquet, arrow):
        np.testing.assert_array_equal(open_features(write(tmp_path, X)).loaded().array, X)


def test_arrow_that_is_not_compressed_is_read_where_it_lies(tmp_path: Path) -> None:
    features = open_features(arrow(tmp_path, matrix("float32")))
    assert isinstance(features, ShardedFeatures)
    assert all(isinstance(one, RawFeatures) for one in features._shards)


def test_an_engine_sweeps_over_every_form(form: Write, tmp_path: Path) -> None:
    from labelchef.model.engines import RowLabels

    X, rng = matrix("float32"), np.random.default_rng(0)
    labels, W = RowLabels(rng.dirichlet(np.ones(2), N), np.ones(N)), rng.normal(size=(1, D + 1))
    engines = [StreamingEngine(one, bias=True) for one in (ArrayFeatures(X), open_features(form(tmp_path, X)))]
    found: list[Any] = [engine.sweep(labels, W=W, gradient=True) for engine in engines]
    one, two = found
    np.testing.assert_allclose(two.gradient, one.gradient, atol=1e-9)
    np.testing.assert_array_equal(two.logits, one.logits)


def test_the_store_copies_them_in_blocks(form: Write, tmp_path: Path) -> None:
    X = matrix()
    (tmp_path / "store").mkdir()
    facts = write_array(tmp_path / "store", "features", open_features(form(tmp_path, X)))
    np.testing.assert_array_equal(read_array(tmp_path / "store", facts), X)


def ranged(folder: Path, *, ranges: bool = True) -> Iterator[str]:
    """A web server of a folder that knows ranges, or not."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked, path = self.headers.get("Range"), Path(self.translate_path(self.path))
            if asked is None or not ranges or not path.is_file():
                return super().do_GET()
            first, last = asked.removeprefix("bytes=").split("-")
            content = path.read_bytes()[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

        def log_message(self, *_: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning")
def test_at_a_web_server(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    X = matrix()
    np.save(tmp_path / "x.npy", X)
    serving = ranged(tmp_path)
    url = next(serving) + "/x.npy"
    features = open_features(url)
    np.testing.assert_array_equal(np.concatenate([block for _, block in features.blocks(rows=100)]), X)
    np.testing.assert_array_equal(features.take([5, 600]), X[[5, 600]].astype(np.float32))
    np.save(tmp_path / "x.npy", X[:-1])
    with pytest.raises(InvalidInputError, match="has changed while it is used"):
        list(features.blocks())
    (tmp_path / "x.npy").unlink()
    with pytest.raises(InvalidInputError, match="cannot be found"):
        open_features(url)
    list(serving)


@pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning")
def test_a_file_of_the_same_size_at_a_web_server_is_another(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    np.save(tmp_path / "x.npy", matrix())
    os.utime(tmp_path / "x.npy", (1_000_000_000, 1_000_000_000))
    serving = ranged(tmp_path)
    features = open_features(next(serving) + "/x.npy")
    features.check()
    np.save(tmp_path / "x.npy", matrix() + 1)
    with pytest.raises(InvalidInputError, match="has changed while it is used: it was written since") as error:
        features.check()
    assert error.value.code == "features_changed"
    list(serving)


@pytest.mark.parametrize("mark", ["ETag", "md5Hash", "Last-Modified", "last_modified", "LastModified", "updated"])
def test_a_store_that_keeps_listings_is_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    version, listed, look = ["first"], {}, memory.info

    def info(self: Any, path: str, **_: Any) -> dict[str, Any]:
        if path not in listed:
            found = look(self, path)
            listed[path] = {"name": path, "size": found["size"], "type": found["type"], mark: version[0]}
        return listed[path]

    monkeypatch.setattr(memory, "info", info)
    monkeypatch.setattr(memory, "invalidate_cache", lambda _, path=None: listed.pop(path, None))
    features = open_features(in_memory(tmp_path, matrix()))
    features.check()
    version[0] = "second"
    with pytest.raises(InvalidInputError, match="it was written since"):
        features.check()


@pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning")
def test_a_server_without_ranges_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    np.save(tmp_path / "x.npy", np.zeros((5000, 9), dtype=np.float32))
    serving = ranged(tmp_path, ranges=False)
    url = next(serving) + "/x.npy"
    with pytest.raises(InvalidInputError, match="expected a server that knows ranges"):
        open_features(url).take([4000])
    list(serving)


class TestErrors:
    def test_a_shard_that_is_missing_is_named(self, tmp_path: Path) -> None:
        folder = Path(npy_shards(tmp_path, matrix()))
        features = open_features(folder)
        (folder / "part-00001-of-00003.npy").rename(tmp_path / "kept")
        with pytest.raises(InvalidInputError, match=r"part-00001-of-00003\.npy is missing, 2 of 3 are there"):
            open_features(folder)
        with pytest.raises(InvalidInputError, match=r"part-00001-of-00003\.npy cannot be read: No such file"):
            list(features.blocks())
        (tmp_path / "kept").rename(folder / "part-00001-of-00003.npy")
        assert len(list(features.blocks())) == 3, "it goes on when it is back"

    def test_a_shard_of_another_shape_is_named(self, tmp_path: Path) -> None:
        for name, shape in (("a", (5, 3)), ("b", (5, 4))):
            np.save(tmp_path / f"{name}.npy", np.zeros(shape, dtype=np.float32))
        with pytest.raises(
            InvalidInputError, match=r"b\.npy has 4 columns of float32; expected 3 of float32, as .*a\.npy"
        ):
            open_features(tmp_path)

    def test_a_manifest_says_order_and_rows(self, tmp_path: Path) -> None:
        X = matrix()
        np.save(tmp_path / "second.npy", X[:300])
        np.save(tmp_path / "first.npy", X[300:])
        shards = [{"file": "second.npy", "rows": 300}, {"file": "first.npy", "rows": 400}]
        (tmp_path / "features.json").write_text(json.dumps({"shards": shards}))
        np.testing.assert_array_equal(open_features(tmp_path).loaded().array, X)
        shards[1]["rows"] = 399
        (tmp_path / "features.json").write_text(json.dumps({"shards": shards}))
        with pytest.raises(InvalidInputError, match=r"first\.npy has 400 rows; expected 399"):
            open_features(tmp_path)
        (tmp_path / "first.npy").unlink()
        with pytest.raises(InvalidInputError, match=r"the shard first\.npy is missing, which features\.json names"):
            open_features(tmp_path)
        (tmp_path / "features.json").write_text("[]")
        with pytest.raises(InvalidInputError, match=r"features\.json cannot be read"):
            open_features(tmp_path)

    def test_a_manifest_that_is_not_utf_8(self, tmp_path: Path) -> None:
        fsspec, content = (
            pytest.importorskip("fsspec"),
            '{"shards": [{"file": "größe.npy", "rows": 3}]}'.encode("latin-1"),
        )
        (tmp_path / "features.json").write_bytes(content)
        url = f"memory://{tmp_path.name}/manifest"
        with fsspec.open(f"{url}/features.json", "wb") as stream:
            stream.write(content)
        for place in (tmp_path, url):
            with pytest.raises(InvalidInputError, match=r"features\.json cannot be read .*; expected UTF-8") as error:
                open_features(place)
            assert "rows" not in str(error.value).split("; expected")[0], "the file is not shown"

    def test_folders_that_are_none(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match=r"holds no \.npy"):
            open_features(tmp_path)
        with pytest.raises(InvalidInputError, match="several kinds"):
            shard_names(["a.npy", "b.parquet"], None, "x")

    @pytest.mark.parametrize("write", [parquet, arrow])
    def test_damaged_columns(self, write: Write, tmp_path: Path) -> None:
        path = Path(write(tmp_path, matrix("float32")))
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(InvalidInputError, match="cut off or damaged") as error:
            open_features(path)
        assert str(path) in str(error.value)
        path.write_bytes(b"nothing of the kind")
        with pytest.raises(InvalidInputError, match="cannot be read"):
            open_features(path)

    def test_a_damaged_row_group_is_named_when_it_is_read(self, tmp_path: Path) -> None:
        path = Path(parquet(tmp_path, matrix("float32")))
        content = bytearray(path.read_bytes())
        content[40:2000] = bytes(1960)
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"x\.parquet cannot be read"):
            list(open_features(path).blocks())

    def test_rows_without_features(self, tmp_path: Path) -> None:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        values = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
        pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet")
        with pytest.raises(InvalidInputError, match="rows without features"):
            list(open_features(tmp_path / "x.parquet").blocks())
        pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "x.parquet")
        with pytest.raises(InvalidInputError, match="no column of fixed-size lists, only x"):
            open_features(tmp_path / "x.parquet")

    def test_urls_that_lead_nowhere(self) -> None:
        pytest.importorskip("fsspec")
        for url in ("memory://nothing/x.npy", "memory://nothing/here"):
            with pytest.raises(InvalidInputError, match=r"cannot be (found|listed)"):
                open_features(url)
        with pytest.raises(InvalidInputError, match="cannot be opened"):
            open_features("nosuchprotocol://x.npy")


def test_which_places_are_streamed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))
    assert is_streamed(tmp_path)
    assert not is_streamed(tmp_path / "x.npy")


def test_a_campaign_from_a_folder_of_shards(tmp_path: Path) -> None:
    from labelchef.data.campaign_data import find_files, read_files

    X, rng = matrix("float32"), np.random.default_rng(0)
    npy_shards(tmp_path, X)
    (tmp_path / "x").rename(tmp_path / "features")
    y = rng.integers(0, 2, 50)
    np.save(tmp_path / "weak.npy", rng.dirichlet(np.ones(2), N))
    np.save(tmp_path / "val_features.npy", X[:50])
    np.save(tmp_path / "val_labels.npy", y)
    data = read_files(find_files(tmp_path))
    assert isinstance(data.X, Features)
    assert data.X.shape == (N, D)
