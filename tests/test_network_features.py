"""Features from networks on disk: what comes out is what the network computes, and bad files are refused."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiments.architectures import EmbeddingCnn, LeNet, ResNet50
from torch import nn

from labelchef import InvalidInputError
from labelchef.networks.features import extract, load


@pytest.fixture
def images(rng: np.random.Generator) -> Any:
    return rng.normal(size=(11, 1, 28, 28)).astype(np.float32)


def test_a_state_dict_goes_into_its_module(tmp_path: Path, images: Any) -> None:
    saved = LeNet(3)
    torch.save(saved.state_dict(), tmp_path / "plain.pth")
    torch.save({"state_dict": saved.state_dict(), "epoch": 3}, tmp_path / "checkpoint.pt")
    expected = saved.eval()(torch.from_numpy(images)).detach().numpy()
    for name in ("plain.pth", "checkpoint.pt"):
        module = load(LeNet(3), tmp_path / name, device="cpu")
        np.testing.assert_allclose(extract(module, images, batch_size=4, device="cpu"), expected, atol=1e-6)


def test_scripts_and_exported_programs_bring_their_own_module(tmp_path: Path, images: Any) -> None:
    saved = LeNet(3).eval()
    x = torch.from_numpy(images)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(saved, x), tmp_path / "script.pt")  # type: ignore[no-untyped-call]
    program = torch.export.export(saved, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, tmp_path / "program.pt2")
    for name in ("script.pt", "program.pt2"):
        module = load(None, tmp_path / name, device="cpu")
        found = extract(module, images, batch_size=4, device="cpu")
        np.testing.assert_allclose(found, saved(x).detach().numpy(), atol=1e-5)


def test_layers_progress_and_files(tmp_path: Path, images: Any) -> None:
    module, told = LeNet(3), []
    x = torch.from_numpy(images)
    with torch.no_grad():
        below = module.convolutions(x)
        hidden = module.hidden(below).numpy()
    np.testing.assert_allclose(extract(module, images, layer="penultimate", device="cpu"), hidden, atol=1e-6)
    found = extract(
        module, images, layer="convolutions.3", batch_size=5, device="cpu", out=tmp_path / "features.npy",
        on_batch=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(5, 11), (10, 11), (11, 11)]
    assert found.shape == (11, 16 * 10 * 10)
    np.testing.assert_array_equal(np.load(tmp_path / "features.npy"), found)
    assert module.training, "the mode is given back"
    assert [path.name for path in tmp_path.iterdir()] == ["features.npy"]
    assert str(found.filename) == str(tmp_path / "features.npy"), "workers are sent maps by their file's name"  # type: ignore[attr-defined]


def test_an_interrupted_extraction_leaves_no_file_that_looks_whole(tmp_path: Path, images: Any) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(LeNet(3), images, batch_size=5, device="cpu", out=tmp_path / "features.npy", on_batch=stop)
    assert not (tmp_path / "features.npy").exists()
    for out in (tmp_path / "nowhere" / "features.npy", tmp_path):
        with pytest.raises(InvalidInputError, match="cannot be written"):
            extract(LeNet(3), images, device="cpu", out=out)


def test_a_transformer_is_read_as_the_user_says(rng: np.random.Generator) -> None:
    """As for BERT: ids with padding, the mean over what is no padding."""
    embedding = nn.Embedding(30, 8, padding_idx=0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    net = nn.ModuleDict({"embedding": embedding, "body": body})
    ids = rng.integers(1, 30, (6, 5))
    ids[:3, 3:] = 0

    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = net["body"](net["embedding"](x), src_key_padding_mask=x == 0)
        kept = (x != 0)[:, :, None]
        mean: torch.Tensor = (hidden * kept).sum(dim=1) / kept.sum(dim=1)
        return mean

    found = extract(net, ids, forward=forward, batch_size=4, device="cpu")
    short = extract(net, ids[:3, :3], forward=forward, device="cpu")
    assert found.shape == (6, 8)
    np.testing.assert_allclose(found[:3], short, atol=1e-5)


def test_resnet50_is_the_usual_one() -> None:
    net = ResNet50()
    assert sum(p.numel() for p in net.parameters()) == 25_557_032
    names = set(net.state_dict())
    assert len(names) == 320
    assert {"conv1.weight", "layer1.0.downsample.1.running_var", "layer4.2.bn3.num_batches_tracked", "fc.bias"} <= names
    assert "layer1.1.downsample.0.weight" not in names
    features = extract(net, np.zeros((2, 3, 64, 64), dtype=np.uint8), layer="penultimate", device="cpu")
    assert features.shape == (2, 2048)


def test_architectures_refuse_what_they_cannot_take() -> None:
    with pytest.raises(InvalidInputError, match="12×12"):
        LeNet(2, side=8)
    with pytest.raises(InvalidInputError, match="at least 16"):
        EmbeddingCnn(8, 2)
    for side in (28, 32, 33):
        assert LeNet(4, channels=3, side=side)(torch.zeros(2, 3, side, side)).shape == (2, 4)
    for width in (16, 17, 18, 19, 383, 768):
        assert EmbeddingCnn(width, 3)(torch.zeros(2, width)).shape == (2, 3)


def test_bad_files_and_layers_are_refused(tmp_path: Path, images: Any) -> None:
    torch.save(LeNet(3).state_dict(), tmp_path / "three.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    (tmp_path / "text.pth").write_text("no weights")
    torch.save(LeNet(3), tmp_path / "pickled.pth")  # a whole module: loading it would run code
    for module, name, match in (
        (LeNet(3), "missing.pth", "is not there"),
        (None, "three.pth", "no module of its own"),
        (LeNet(4), "three.pth", "does not fit the module"),
        (LeNet(3), "list.pth", "no state dict"),
        (LeNet(3), "text.pth", "cannot be read as weights"),
        (LeNet(3), "pickled.pth", "cannot be read as weights"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            load(module, tmp_path / name, device="cpu")
    with pytest.raises(InvalidInputError, match="no part 'nose'"):
        extract(LeNet(3), images, layer="nose", device="cpu")
    with pytest.raises(InvalidInputError, match="`forward`"):
        extract(LeNet(3), images, forward=lambda net, x: net(x).sum(), device="cpu")
    with pytest.raises(InvalidInputError, match="samples along the first axis"):
        extract(LeNet(3), np.zeros(4), device="cpu")
