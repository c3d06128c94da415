"""The networks that bench/gpu measures, as plain PyTorch modules with random weights: what is exported to ONNX is what
the peers run. They have the shapes of the well-known ones, and need torch alone, but for those of torchvision. What a network has besides one
tensor is cut out of that tensor, so that no engine can compute it ahead."""

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


class WhisperEncoder(nn.Module):
    """Of whisper tiny: 30 seconds of sound."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, 384, 3, 1, 1), nn.Conv1d(384, 384, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(1, 1500, 384))
        self.layers, self.norm = nn.Sequential(*(Layer(True, "none", False, 384, 6) for _ in range(4))), nn.LayerNorm(384)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2) + self.places
        return self.norm(self.layers(x))


class RootMeanSquare(nn.Module):
    """As transformers have it for T5; exporters have no operator for that of PyTorch's in all versions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(512))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class T5Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RootMeanSquare(), RootMeanSquare()
        self.q, self.k, self.v, self.o = (nn.Linear(512, 512, bias=False) for _ in range(4))
        self.wi, self.wo = nn.Linear(512, 2048, bias=False), nn.Linear(2048, 512, bias=False)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        b, s, _ = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(b, s, 8, 64).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = torch.softmax(q @ k.transpose(2, 3) + bias, -1) @ v
        x = x + self.o(y.transpose(1, 2).reshape(b, s, 512))
        return x + self.wo(F.relu(self.wi(self.norm2(x))))


class T5Encoder(nn.Module):
    """Of T5 small, with a bias for each distance of two words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.distances = nn.Embedding(32128, 512), nn.Embedding(32, 8)
        self.layers, self.norm = nn.ModuleList(T5Layer() for _ in range(6)), RootMeanSquare()
        place = torch.arange(128)
        self.register_buffer("buckets", ((place[None] - place[:, None]).clamp(-16, 15) + 16))

    def forward(self, ids: Tensor) -> Tensor:
        x, bias = self.words(ids), self.distances(self.buckets).permute(2, 0, 1)[None].contiguous()
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x)


class Residual(nn.Module):
    def __init__(self, before: int, after: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, before), nn.GroupNorm(32, after)
        self.conv1, self.conv2 = nn.Conv2d(before, after, 3, 1, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.time = nn.Linear(512, after)
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Of `x` on `context`, or on itself."""

    def __init__(self, size: int, other: int):
        super().__init__()
        self.q, self.out = nn.Linear(size, size, bias=False), nn.Linear(size, size)
        self.k, self.v = nn.Linear(other, size, bias=False), nn.Linear(other, size, bias=False)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        b, s, size = x.shape
        q, k, v = (t.view(b, -1, size // 64, 64).transpose(1, 2) for t in (self.q(x), self.k(context), self.v(context)))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, size))


class SpatialTransformer(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.norm, self.into, self.back = nn.GroupNorm(32, size), nn.Conv2d(size, size, 1), nn.Conv2d(size, size, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.own, self.cross = Attention(size, size), Attention(size, 256)
        self.up, self.down = nn.Linear(size, 8 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        b, c, h, w = x.shape
        y = self.into(self.norm(x)).permute(0, 2, 3, 1).reshape(b, h * w, c)
        z = self.norms[0](y)
        y = y + self.own(z, z)
        y = y + self.cross(self.norms[1](y), context)
        z, gate = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(z * F.gelu(gate))
        return x + self.back(y.reshape(b, h, w, c).permute(0, 3, 1, 2))


class UNet(nn.Module):
    """A small network of diffusion: its input is an image of 4 x 32 x 32, 77 words of 256, and the time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.time = nn.Conv2d(4, 128, 3, 1, 1), nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, 512))
        down, up = ((128, 128, True), (128, 256, True), (256, 384, False)), ((768, 384, False), (640, 256, True), (384, 128, True))
        self.down = nn.ModuleList(Residual(a, b) for a, b, _ in down)
        self.down_words = nn.ModuleList(SpatialTransformer(b) if w else nn.Identity() for _, b, w in down)
        self.smaller = nn.ModuleList(nn.Conv2d(b, b, 3, 2, 1) for _, b, _ in down[:2])
        self.middle = nn.ModuleList((Residual(384, 384), SpatialTransformer(384), Residual(384, 384)))
        self.up = nn.ModuleList(Residual(a, b) for a, b, _ in up)
        self.up_words = nn.ModuleList(SpatialTransformer(b) if w else nn.Identity() for _, b, w in up)
        self.larger = nn.ModuleList(nn.Conv2d(b, b, 3, 1, 1) for _, b, _ in up[:2])
        self.norm, self.last = nn.GroupNorm(32, 128), nn.Conv2d(128, 4, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        image, words, time = x[:, :4096].view(-1, 4, 32, 32), x[:, 4096:-1].view(-1, 77, 256), x[:, -1:]
        waves = time * torch.exp(torch.arange(64, device=x.device, dtype=x.dtype) * -0.14)
        time = self.time(torch.cat([waves.cos(), waves.sin()], -1))
        y, kept = self.first(image), []
        for i, block in enumerate(self.down):
            y = block(y, time)
            if i < 2:
                y = self.down_words[i](y, words)
            kept.append(y)
            if i < 2:
                y = self.smaller[i](y)
        y = self.middle[2](self.middle[1](self.middle[0](y, time), words), time)
        for i, block in enumerate(self.up):
            y = block(torch.cat([y, kept.pop()], 1), time)
            if i > 0:
                y = self.up_words[i](y, words)
            if i < 2:
                y = self.larger[i](F.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.norm(y)))


class Recommender(nn.Module):
    """DLRM: 26 categories and 13 numbers, which are whole ones here."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20000 if i < 16 else 1000, 64) for i in range(26))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(415, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

    def forward(self, x: Tensor) -> Tensor:
        dense = self.bottom(x[:, 26:].to(self.bottom[0].weight.dtype) / 1000)
        rows = torch.stack([dense, *(table(x[:, i]) for i, table in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([dense, products], 1)))


class Recurrent(nn.Module):
    def __init__(self, layer: type[nn.RNNBase]):
        super().__init__()
        self.layers, self.last = layer(128, 256, 2, batch_first=True, bidirectional=True), nn.Linear(512, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x)[0])


def of_torchvision(name: str) -> Callable[[], nn.Module]:
    """Random weights, and the statistics that they lead to: with those of a new network values vanish."""

    def make() -> nn.Module:
        import torchvision

        module = getattr(torchvision.models, name)(weights=None)
        norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = 1.0
        if norms:
            with torch.no_grad():
                module.train()(torch.randn(8, 3, 224, 224))
        return module

    return make


@dataclass(frozen=True)
class Case:
    module: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    type: torch.dtype
    channels_last: bool = False
    tf32: bool = False  # all of them multiply float32 so
    traced: bool = False  # exported by tracing: the other exporter takes recurrent layers apart


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


def _zoo() -> dict[str, Case]:
    floats: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], bool, bool]] = {
        name: (of_torchvision(name), _image(1), name != "swin_t", False)
        for name in ("mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "swin_t")}
    floats |= {
        "vit_b1": (VisionTransformer, _image(1), False, False),
        "gpt2_s64": (lambda: Text(True, 50257, 1024, True), _ids(1, 64, 50257), False, False),
        "whisper_tiny": (WhisperEncoder, lambda: torch.randn(1, 80, 3000), False, False),
        "t5_small": (T5Encoder, _ids(1, 128, 32128), False, False),
        "sd_unet": (UNet, lambda: torch.randn(1, 4 * 32 * 32 + 77 * 256 + 1), True, False),
        "dlrm": (Recommender, _ids(128, 39, 1000), False, False),
        "bilstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(1, 100, 128), False, True),
        "bigru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(1, 100, 128), False, True),
    }
    return {f"{name}_{short}": Case(module, inputs, dtype, channels_last and dtype == torch.float16, traced=traced)
            for name, (module, inputs, channels_last, traced) in floats.items()
            for short, dtype in (("f16", torch.float16), ("f32", torch.float32))}


ZOO = {name: case for name, case in _zoo().items() if name not in CASES}  # the other architectures of the zoo
