"""Features from a network whose weights lie on disk: what the convex pipeline is fed with. Nothing is downloaded.

module = load(ResNet50(), "resnet50.pth")            # a state dict and the module it belongs to
X = extract(module, images, layer="penultimate")     # (n, 2048) float32

bert = AutoModel.from_pretrained("folder", local_files_only=True)
X = extract(bert, ids, forward=lambda net, x: net(x, attention_mask=(x != 0)).last_hidden_state[:, 0])
"""

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from labelchef.base.errors import InvalidInputError
from labelchef.networks.inputs import as_device, as_inputs, batches
from labelchef.networks.model import penultimate, watched
from labelchef.networks.task import NetworkTask
from labelchef.networks.training import predicting

Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def load(module: nn.Module | None, path: str | Path, *, device: str = "auto") -> nn.Module:
    """A network from disk, ready to predict.

    `path` is a state dict (`.pt`, `.pth`; then `module` is what it belongs to), a TorchScript file or an exported program
    (`.pt2`), which bring their own module. Weights are read without running code from the file; TorchScript files run
    theirs, so load only those you trust.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(f"{file} is not there; expected a file with weights", code="weights")
    if file.suffix == ".pt2":
        exported: nn.Module = torch.export.load(file).module()
        return exported.to(as_device(device))  # an exported program is fixed as it predicts: it has no eval()
    if _is_script(file):
        with warnings.catch_warnings():  # PyTorch would rather have it exported; the file is what the user has
            warnings.simplefilter("ignore", DeprecationWarning)
            scripted: nn.Module = torch.jit.load(str(file), map_location=as_device(device))  # type: ignore[no-untyped-call]
        return scripted.eval()
    if module is None:
        raise InvalidInputError(
            f"{file} has no module of its own; expected the module that its weights belong to, for example ResNet50()",
            code="weights",
        )
    weights = _state_dict(file)
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise InvalidInputError(
            f"{file} does not fit the module ({str(error).splitlines()[0]}); expected the weights of a "
            f"{type(module).__name__}: {'; '.join(line.strip() for line in str(error).splitlines()[1:3])}",
            code="weights",
        ) from None
    return module.to(as_device(device)).eval()


def _is_script(file: Path) -> bool:
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any("/code/" in name for name in archive.namelist())


def _state_dict(file: Path) -> dict[str, torch.Tensor]:
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is none of its own
        raise InvalidInputError(
            f"{file} cannot be read as weights ({type(error).__name__}); expected a state dict saved by torch.save",
            code="weights",
        ) from None
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise InvalidInputError(f"{file} holds no state dict; expected names and tensors", code="weights")
    return found


def extract(
    module: nn.Module,
    X: Any,
    *,
    layer: str | None = None,
    forward: Forward | None = None,
    batch_size: int = 128,
    device: str = "auto",
    on_batch: Callable[[int, int], None] | None = None,
    out: str | Path | None = None,
) -> NDArray[np.float32]:
    """Features (n, D) in float32, batch by batch; `on_batch(samples done, samples in all)` is told of each.

    `layer` is "penultimate" for what the last linear layer is given, the name of a part for what that part returns, or
    None for the network's own output; further axes are flattened. `forward(module, x)` says how else to get them. With
    `out`, features go to a file beside it as they come, which takes this .npy file's name when all are there; a memory map
    of it is returned.
    """
    inputs, where = as_inputs(X), as_device(device)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    read = forward or _reader(module, layer)
    partial = Path(f"{out}.part")  # holds the features until all are there
    found: NDArray[np.float32] = np.empty((0, 0), np.float32)
    with torch.no_grad(), predicting(module.to(where)):
        for rows, x in batches(inputs, batch_size, where, dtype):
            features = _flat(read(module, x), len(x))
            if rows.start == 0:
                shape = (len(inputs), features.shape[1])
                found = np.empty(shape, np.float32) if out is None else _mapped(partial, Path(out), shape)
            found[rows] = features
            if on_batch is not None:
                on_batch(rows.stop, len(inputs))
    if out is None:
        return found
    assert isinstance(found, np.memmap)
    found.flush()
    del found
    partial.replace(out)
    whole: NDArray[np.float32] = np.load(out, mmap_mode="r+")
    return whole


def _flat(made: Any, n: int) -> NDArray[np.float32]:
    if not isinstance(made, torch.Tensor) or made.ndim < 2 or len(made) != n:
        shape = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
        raise InvalidInputError(
            f"the network gave {shape} for {n} samples; expected a tensor ({n}, …). Say by `forward` what to take",
            code="features",
        )
    return np.asarray(made.flatten(1).float().cpu().numpy(), dtype=np.float32)


def _mapped(partial: Path, out: Path, shape: tuple[int, int]) -> NDArray[np.float32]:
    try:
        if out.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        mapped: NDArray[np.float32] = np.lib.format.open_memmap(partial, "w+", np.float32, shape)
    except OSError as error:
        raise InvalidInputError(
            f"{out} cannot be written ({error.strerror}); expected a file in a folder that is there, with room for "
            f"{4 * shape[0] * shape[1]:,} bytes",
            code="features",
        ) from None
    return mapped


def _reader(module: nn.Module, layer: str | None) -> Forward:
    if layer is None:
        return lambda net, x: net(x)
    if layer == "penultimate":
        task = NetworkTask(module, (), "logits")
        return lambda _, x: penultimate(task, x)
    parts = dict(module.named_modules())
    if layer not in parts:
        names = ", ".join(name for name in list(parts)[1:21])
        raise InvalidInputError(
            f"the network has no part {layer!r}; expected 'penultimate' or one of: {names}", code="features"
        )
    return lambda net, x: watched(net, parts[layer], x)[1][-1][1]
