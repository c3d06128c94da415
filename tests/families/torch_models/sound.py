"""Networks from and to waves: separation, and vocoders whose lines are long."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case


class Vocoder(nn.Module):
    """As HiFi-GAN: transposed convolutions, and branches of dilated ones whose padding is wider than the kernel."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.enter, self.leave = nn.Conv1d(10, width, 7, padding=3), nn.Conv1d(width // 4, 1, 7, padding=3)
        self.rise, self.branches = nn.ModuleList(), nn.ModuleList()
        for i, (rate, taps) in enumerate(((8, 16), (4, 8))):
            after = width >> (i + 1)
            self.rise.append(nn.ConvTranspose1d(width >> i, after, taps, rate, (taps - rate) // 2))
            self.branches.append(
                nn.ModuleList(
                    nn.ModuleList(nn.Conv1d(after, after, k, padding=d * (k - 1) // 2, dilation=d) for d in (1, 3, 5))
                    for k in (3, 11)
                )
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for rise, branches in zip(self.rise, self.branches):
            x, total = rise(F.leaky_relu(x, 0.1)), 0
            for branch in branches:
                y = x
                for conv in branch:
                    y = y + conv(F.leaky_relu(y, 0.1))
                total = total + y
            x = total / 2
        return torch.tanh(self.leave(F.leaky_relu(x)))


class Separator(nn.Module):
    """As Conv-TasNet: a learnt filter bank, and blocks with a norm over all channels and all time."""

    def __init__(self, filters: int = 24, width: int = 12):
        super().__init__()
        self.filters = filters
        self.encode = nn.Conv1d(1, filters, 16, 8, bias=False)
        self.decode = nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)
        self.enter = nn.Sequential(nn.GroupNorm(1, filters, 1e-8), nn.Conv1d(filters, width, 1))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, filters, 1),
                nn.PReLU(),
                nn.GroupNorm(1, filters, 1e-8),
                nn.Conv1d(filters, filters, 3, padding=2**i, dilation=2**i, groups=filters),
                nn.PReLU(),
                nn.GroupNorm(1, filters, 1e-8),
                nn.Conv1d(filters, width, 1),
            )
            for i in range(3)
        )
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(width, 2 * filters, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        encoded = F.relu(self.encode(x))
        y = self.enter(encoded)
        for block in self.blocks:
            y = y + block(y)
        masks = self.masks(y).view(x.shape[0], 2, self.filters, -1).sigmoid()
        return self.decode((masks * encoded[:, None]).view(2 * x.shape[0], self.filters, -1))


CASES = [
    Case("vocoder", Vocoder, lambda n: {"x": torch.randn(1, 10, 9 * n)}, {"x": {2: "frames"}}),
    Case("separator", Separator, lambda n: {"x": torch.randn(1, 1, 808 * n)}, {"x": {2: "samples"}}),
]
