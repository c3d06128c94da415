"""The networks that bench/gpu measures, as plain PyTorch modules with random weights: what is exported to ONNX is what
the peers run. They have the shapes of the well-known ones, and need torch alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()

        def conv(before: int, after: int, kernel: int, step: int = 1) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(after))

        self.first, self.second = conv(channels, width, 1), conv(width, width, 3, stride)
        self.third = conv(width, 4 * width, 1)
        self.shortcut = conv(channels, 4 * width, 1, stride) if stride != 1 or channels != 4 * width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.third(F.relu(self.second(F.relu(self.first(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, channels = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(channels, width, stride if i == 0 else 1))
                channels = 4 * width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Layer(nn.Module):
    """Of a transformer: norms before the parts (GPT-2, ViT) or behind them (BERT), GELU exact or by tanh."""

    def __init__(self, before: bool, gelu: str, causal: bool, size: int = 768, heads: int = 12):
        super().__init__()
        self.before, self.gelu, self.causal, self.heads = before, gelu, causal, heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)

    def attend(self, x: Tensor) -> Tensor:
        b, s, size = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, s, size))

    def feed(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate=self.gelu))

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x + self.attend(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.feed(x))


class Text(nn.Module):
    """BERT (norms behind, exact GELU) or GPT-2 (norms before, causal, GELU by tanh, and the scores of all words)."""

    def __init__(self, causal: bool, words: int, longest: int, scores: bool):
        super().__init__()
        self.words, self.places = nn.Embedding(words, 768), nn.Embedding(longest, 768)
        self.first = nn.Identity() if causal else nn.LayerNorm(768)
        self.layers = nn.Sequential(*(Layer(causal, "tanh" if causal else "none", causal) for _ in range(12)))
        self.last = nn.LayerNorm(768) if causal else nn.Identity()
        self.scores = nn.Linear(768, words, bias=False) if scores else nn.Identity()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[:ids.shape[1]]
        return self.scores(self.last(self.layers(self.first(x))))


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 768)), nn.Parameter(torch.randn(1, 197, 768))
        self.layers = nn.Sequential(*(Layer(True, "none", False) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class MemoryBound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(768)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(6):
            y = torch.sigmoid(x) * x + 0.5
            y = torch.tanh(y) * 0.3 + torch.erf(y)
            x = x + F.gelu(self.norm(y * torch.exp(-torch.abs(y))))
        return torch.softmax(x, -1)


@dataclass(frozen=True)
class Case:
    module: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    type: torch.dtype
    channels_last: bool = False
    tf32: bool = False  # all of them multiply float32 so


def _image(batch: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(batch, 3, 224, 224)


def _ids(batch: int, length: int, words: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, words, (batch, length))


def _bert() -> nn.Module:
    return Text(False, 30522, 512, False)


CASES = {
    "resnet50_b1_f16": Case(ResNet50, _image(1), torch.float16, True),
    "resnet50_b32_f16": Case(ResNet50, _image(32), torch.float16, True),
    "bert_b1_f16": Case(_bert, _ids(1, 128, 30522), torch.float16),
    "bert_b32_f16": Case(_bert, _ids(32, 128, 30522), torch.float16),
    "vit_b1_f16": Case(VisionTransformer, _image(1), torch.float16),
    "gpt2_s64_f16": Case(lambda: Text(True, 50257, 1024, True), _ids(1, 64, 50257), torch.float16),
    "membound_f32": Case(MemoryBound, lambda: torch.randn(32, 512, 768), torch.float32),
    "resnet50_b1_f32": Case(ResNet50, _image(1), torch.float32, True),
    "bert_b1_f32": Case(_bert, _ids(1, 128, 30522), torch.float32),
    "resnet50_b1_tf32": Case(ResNet50, _image(1), torch.float32, True, tf32=True),
    "bert_b1_tf32": Case(_bert, _ids(1, 128, 30522), torch.float32, tf32=True),
}
