"""Convolutional networks: blocks of the well-known ones."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: nn.Module | None = None):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        act or nn.Identity(),
    )


def settle(module: nn.Module) -> nn.Module:
    """Running statistics of batch normalisations that are not 0 and 1."""
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    return module


class Residual(nn.Module):
    def __init__(self, channels: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(channels, channels, 3, stride, act=nn.ReLU()), conv_bn(channels, channels * stride, 3)
        )
        self.short = conv_bn(channels, channels * stride, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.short(x))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, gate: nn.Module):
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1), gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class InvertedResidual(nn.Module):
    def __init__(self, act: nn.Module, gate: nn.Module):
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(8, 24, 1, act=act),
            conv_bn(24, 24, 5, groups=24, act=act),
            SqueezeExcite(24, gate),
            conv_bn(24, 8, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class ConvNext(nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.LayerNorm(8, eps=1e-6)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.scale * self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class DenseBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * i), nn.ReLU(), nn.Conv2d(8 + 4 * i, 4, 3, padding=1)) for i in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class Shuffle(nn.Module):
    """ShuffleNet's unit: split, transform, shuffle channels; with channel counts from the tensor."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(4, 4, 1, act=nn.ReLU()), conv_bn(4, 4, 3, groups=4), conv_bn(4, 4, 1, act=nn.ReLU())
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, 1)
        y = torch.cat([a, self.body(b)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class UNet(nn.Module):
    def __init__(self, up: str):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.up = {
            "transposed": nn.ConvTranspose2d(16, 8, 2, 2),
            "bilinear": nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(16, 8, 1)
            ),
            "shuffle": nn.Sequential(nn.Conv2d(16, 32, 1), nn.PixelShuffle(2)),
        }[up]
        self.out = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.silu(self.down1(x))
        b = F.silu(self.norm(self.down2(F.max_pool2d(a, 2))))
        y = self.up(b)
        if y.shape[-1] != a.shape[-1]:
            y = F.pad(y, (0, a.shape[-1] - y.shape[-1], 0, a.shape[-2] - y.shape[-2]))
        return torch.sigmoid(self.out(torch.cat([a, y], 1)))


class Wave(nn.Module):
    """Dilated causal 1-D convolutions with gates."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(6, 12, 3, dilation=2**i) for i in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            a, b = layer(F.pad(x, (2 * 2**i, 0))).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return x


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, (1, 5), padding=(0, 2))
        self.c = nn.Sequential(nn.Conv2d(8, 4, 3, padding=2, dilation=2), nn.PReLU(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return torch.cat([F.leaky_relu(self.a(x), 0.1), F.hardswish(self.b(x)), self.c(x), pooled], 1)


def head(body: nn.Module, channels: int) -> nn.Module:
    return settle(
        nn.Sequential(
            body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(channels, 5), nn.LogSoftmax(-1)
        )
    )


def images(channels: int, size: int = 16):
    return lambda n: {"x": torch.randn(n, channels, size, size)}


BATCH = {"x": {0: "batch"}}
PLANE = {"x": {0: "batch", 2: "height", 3: "width"}}

CASES = [
    Case("residual", lambda: head(nn.Sequential(Residual(8, 1), Residual(8, 2)), 16), images(8), BATCH),
    Case(
        "inverted_residual_hard", lambda: head(InvertedResidual(nn.Hardswish(), nn.Hardsigmoid()), 8), images(8), BATCH
    ),
    Case("inverted_residual_silu", lambda: head(InvertedResidual(nn.SiLU(), nn.Sigmoid()), 8), images(8), BATCH),
    Case(
        "relu6",
        lambda: settle(nn.Sequential(conv_bn(3, 8, 3, 2, act=nn.ReLU6()), nn.MaxPool2d(3, 2, 1, ceil_mode=True))),
        images(3, 17),
        BATCH,
    ),
    Case("convnext", ConvNext, images(8), BATCH),
    Case("dense_block", lambda: head(DenseBlock(), 20), images(8), BATCH),
    Case("channel_shuffle", lambda: settle(Shuffle()), images(8), PLANE),
    Case("inception", Inception, images(8), BATCH),
    Case("unet_transposed", lambda: UNet("transposed"), images(3, 17), BATCH),
    Case("unet_bilinear", lambda: UNet("bilinear"), images(3), BATCH),
    Case("unet_shuffle", lambda: UNet("shuffle"), images(3), BATCH),
    Case("wavenet", Wave, lambda n: {"x": torch.randn(2, 6, 20 * n)}, {"x": {2: "time"}}),
    Case(
        "conv3d",
        lambda: settle(
            nn.Sequential(
                nn.Conv3d(2, 4, 3, padding=1),
                nn.BatchNorm3d(4),
                nn.ReLU(),
                nn.MaxPool3d(2),
                nn.ConvTranspose3d(4, 2, 3, 2, 1, output_padding=1),
            )
        ),
        lambda n: {"x": torch.randn(n, 2, 6, 8, 8)},
        BATCH,
    ),
    Case(
        "instance_norm",
        lambda: nn.Sequential(
            nn.ReflectionPad2d(2),
            nn.Conv2d(3, 4, 5),
            nn.InstanceNorm2d(4, affine=True),
            nn.Upsample(scale_factor=2),
            nn.ReplicationPad2d((1, 2, 0, 1)),
            nn.ELU(),
        ),
        images(3, 10),
        BATCH,
    ),
    Case(
        "local_response",
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.LocalResponseNorm(5), nn.AvgPool2d(3, 2, ceil_mode=True)),
        images(3, 12),
        BATCH,
    ),
    Case(
        "adaptive_pool", lambda: nn.Sequential(nn.AdaptiveAvgPool2d((4, 2)), nn.AdaptiveMaxPool2d(2)), images(3), BATCH
    ),
    Case("unfold", lambda: nn.Unfold(3, padding=1, stride=2), images(3, 8), BATCH),
    Case("fold", lambda: nn.Fold((8, 8), 2, stride=2), lambda n: {"x": torch.randn(n, 12, 16)}, BATCH),
]
