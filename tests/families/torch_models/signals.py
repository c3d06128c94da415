"""Signals: spectrograms, filters, cumulative sums."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case


class Spectrogram(nn.Module):
    def __init__(self, center: bool = True, real: bool = True):
        super().__init__()
        self.center = center
        self.register_buffer("window", torch.hann_window(16))
        self.register_buffer("mel", torch.rand(9, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.view_as_real(torch.stft(x, 16, 8, window=self.window, center=self.center, return_complex=True))
        power = y.pow(2).sum(-1).transpose(1, 2) @ self.mel
        logs = torch.clamp(power, min=1e-10).log10()
        return (torch.maximum(logs, logs.amax((1, 2), keepdim=True) - 8.0) + 4.0) / 4.0


class ConvSpectrogram(nn.Module):
    """The transform as a strided convolution with cosines and sines, as models without STFT have it."""

    def __init__(self):
        super().__init__()
        t, f = torch.arange(16.0), torch.arange(9.0)
        angles = 2 * math.pi * f[:, None] * t[None] / 16
        self.register_buffer("basis", torch.cat([angles.cos(), -angles.sin()])[:, None] * torch.hann_window(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.conv1d(F.pad(x[:, None], (8, 8), mode="reflect"), self.basis, stride=8)
        real, imaginary = y.split(9, 1)
        return torch.sqrt(real**2 + imaginary**2 + 1e-9), torch.atan2(imaginary, real + 2)


class Fourier(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.view_as_real(torch.fft.rfft(x)), torch.fft.fft(x).real


class FourierMixing(nn.Module):
    """As FNet: the real part of a two-dimensional transform."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


class Inverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1])


def signal(n: int):
    return {"x": torch.randn(2, 48 + 8 * n)}


TIME = {"x": {1: "time"}}

CASES = [
    Case("spectrogram", lambda: Spectrogram(False), signal, TIME, exporters=("dynamo",)),
    Case("spectrogram_centered", Spectrogram, signal, exporters=("dynamo",)),
    Case("conv_spectrogram", ConvSpectrogram, signal, TIME),
    Case("fourier", Fourier, lambda n: {"x": torch.randn(n, 12)}, {"x": {0: "batch"}}, exporters=("dynamo",)),
    Case(
        "fourier_mixing",
        FourierMixing,
        lambda n: {"x": torch.randn(n, 6, 8)},
        {"x": {0: "batch"}},
        exporters=("dynamo",),
    ),
    Case("fourier_inverse", Inverse, lambda n: {"x": torch.randn(n, 12)}, {"x": {0: "batch"}}, exporters=("dynamo",)),
]
