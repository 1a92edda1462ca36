"""Small networks of the paper's appendix, and ResNet-50 for features.

- `LeNet`: two convolutions of 5×5 with max-pooling, three linear layers (LeCun et al.), on images (n, channels, side, side).
- `EmbeddingCnn`: the 1-D network for text: two convolutions along an embedding (n, d), then two linear layers. The paper
  says no more than "one 1D convolutional neural network on the embedding representations"; the sizes are ours.
- `ResNet50`: the usual one (He et al. 2016, stride in the 3×3 convolution), its parts named as in the weight files that
  are in common use, so that a state dict from disk fits.

Each ends in a linear layer with one output a class: logits (n, C).
"""

import torch
from torch import nn

from labelchef.base.errors import InvalidInputError


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max-pooling; 28×28 or larger.

    >>> LeNet(10)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    """

    def __init__(self, n_classes: int, *, channels: int = 1, side: int = 28) -> None:
        super().__init__()
        if side < 12:
            raise InvalidInputError(f"side is {side}; expected images of 12×12 or larger", code="network")
        after = (side // 2 - 4) // 2
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.hidden = nn.Sequential(nn.Linear(16 * after**2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU())
        self.output = nn.Linear(84, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, C) of images (n, channels, side, side)."""
        logits: torch.Tensor = self.output(self.hidden(self.convolutions(x)))
        return logits


class EmbeddingCnn(nn.Module):
    """Convolutions along an embedding.

    >>> EmbeddingCnn(384, 2)(torch.zeros(3, 384)).shape
    torch.Size([3, 2])
    """

    def __init__(self, n_features: int, n_classes: int, *, channels: int = 8, hidden: int = 32) -> None:
        super().__init__()
        if n_features < 16:
            raise InvalidInputError(f"n_features is {n_features}; expected at least 16", code="network")
        self.convolutions = nn.Sequential(
            nn.Conv1d(1, channels, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(channels, 2 * channels, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(),
        )  # fmt: skip
        length = ((n_features + 1) // 2) // 2 // 2
        self.hidden = nn.Sequential(nn.Linear(2 * channels * length, hidden), nn.ReLU())
        self.output = nn.Linear(hidden, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, C) of embeddings (n, d)."""
        logits: torch.Tensor = self.output(self.hidden(self.convolutions(x[:, None, :])))
        return logits


class _Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions around a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            shortcut = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output, (n, 4·width, …)."""
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        return torch.relu(self.bn3(self.conv3(out)) + self.downsample(x))


class ResNet50(nn.Module):
    """ResNet-50 on images (n, 3, height, width); `n_classes` of the weights that will be loaded."""

    def __init__(self, n_classes: int = 1000) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
        self.layer1 = self._stage(64, 64, 3, stride=1)
        self.layer2 = self._stage(256, 128, 4, stride=2)
        self.layer3 = self._stage(512, 256, 6, stride=2)
        self.layer4 = self._stage(1024, 512, 3, stride=2)
        self.fc = nn.Linear(2048, n_classes)

    @staticmethod
    def _stage(before: int, width: int, blocks: int, *, stride: int) -> nn.Sequential:
        first = _Bottleneck(before, width, stride)
        return nn.Sequential(first, *(_Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, C)."""
        out = torch.relu(self.bn1(self.conv1(x)))
        out = nn.functional.max_pool2d(out, 3, stride=2, padding=1)
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        logits: torch.Tensor = self.fc(out.mean(dim=(2, 3)))
        return logits
