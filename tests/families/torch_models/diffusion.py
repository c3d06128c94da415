"""Image generation: the denoising network with a time and a text, the decoder of latents, blocks of a diffusion
transformer, and a text encoder with a causal mask."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case

WIDTH, TEXT, HEADS = 16, 12, 2


def times(t: torch.Tensor) -> torch.Tensor:
    """[batch] to [batch, WIDTH]: cosines and sines."""
    rates = torch.exp(-math.log(10000) * torch.arange(WIDTH // 2, dtype=torch.float32) / (WIDTH // 2))
    angles = t[:, None].float() * rates[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], -1)


class ResNetBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, timed: bool = True):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs, eps=1e-5), nn.GroupNorm(4, outputs, eps=1e-5)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(WIDTH, outputs) if timed else None
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor | None = None) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(F.silu(t))[:, :, None, None]
        return self.short(x) + self.conv2(F.silu(self.norm2(y)))


class CrossAttention(nn.Module):
    def __init__(self, text: int):
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = nn.Linear(text, WIDTH, bias=False), nn.Linear(text, WIDTH, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        b, s, c = x.shape
        return x.reshape(b, s, HEADS, c // HEADS).permute(0, 2, 1, 3).reshape(b * HEADS, s, c // HEADS)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        b, s, c = x.shape
        q, k, v = self.heads(self.q(x)), self.heads(self.k(text)), self.heads(self.v(text))
        empty = torch.empty(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype)
        weights = torch.baddbmm(empty, q, k.transpose(-1, -2), beta=0, alpha=(c // HEADS) ** -0.5).softmax(-1)
        y = torch.bmm(weights, v).reshape(b, HEADS, s, c // HEADS).permute(0, 2, 1, 3).reshape(b, s, c)
        return self.o(y)


class SpatialTransformer(nn.Module):
    """Pixels as a sequence: self-attention, attention to the text, a gated feed-forward (GEGLU)."""

    def __init__(self):
        super().__init__()
        self.norm, self.norms = nn.GroupNorm(4, WIDTH, eps=1e-6), nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.into, self.out = nn.Conv2d(WIDTH, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 1)
        self.own, self.cross = CrossAttention(WIDTH), CrossAttention(TEXT)
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(32, WIDTH)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        y = self.into(self.norm(x)).permute(0, 2, 3, 1).reshape(b, h * w, c)
        z = self.norms[0](y)
        y = y + self.own(z, z)
        y = y + self.cross(self.norms[1](y), text)
        value, gate = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(value * F.gelu(gate))
        return self.out(y.reshape(b, h, w, c).permute(0, 3, 1, 2)) + x


class Denoiser(nn.Module):
    """Down, middle, up with what was skipped; the upsampling to the size of what comes from the other side."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.into, self.down = nn.Conv2d(4, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, WIDTH, 3, 2, 1)
        self.block1, self.block2, self.block3 = (ResNetBlock(a, WIDTH) for a in (WIDTH, WIDTH, 2 * WIDTH))
        self.middle, self.up = SpatialTransformer(), nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.norm, self.out = nn.GroupNorm(4, WIDTH), nn.Conv2d(WIDTH, 4, 3, padding=1)

    def forward(self, sample: torch.Tensor, timestep: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        t = self.time(times(timestep).to(sample.dtype))
        a = self.block1(self.into(sample), t)
        y = self.middle(self.block2(self.down(a), t), text)
        y = self.up(F.interpolate(y, size=a.shape[2:], mode="nearest"))
        return self.out(F.silu(self.norm(self.block3(torch.cat([y, a], 1), t))))


class LatentDecoder(nn.Module):
    """One head of attention over pixels, then upsampling by two."""

    def __init__(self):
        super().__init__()
        self.into, self.norm = nn.Conv2d(4, WIDTH, 3, padding=1), nn.GroupNorm(4, WIDTH, eps=1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.block, self.up = ResNetBlock(WIDTH, 8, False), nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.last, self.out = nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        x = self.into(latent)
        b, c, h, w = x.shape
        y = self.norm(x.view(b, c, h * w)).transpose(1, 2)
        q, k, v = (f(y).view(b, -1, 1, c).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, -1, c)
        x = x + self.o(y).transpose(-1, -2).reshape(b, c, h, w)
        x = self.up(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.out(F.silu(self.last(self.block(x))))


class DiffusionTransformer(nn.Module):
    """Patches; norms without weights, scaled and shifted by what the time says; image and text attend to each other in
    one sequence, queries and keys normed."""

    def __init__(self):
        super().__init__()
        self.patch, self.text = nn.Conv2d(4, WIDTH, 2, 2), nn.Linear(TEXT, WIDTH)
        self.change, self.change_text = nn.Linear(WIDTH, 6 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.qkv, self.qkv_text, self.o = (
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.up, self.down, self.out = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH), nn.Linear(WIDTH, 16)
        self.scale = nn.Parameter(torch.rand(WIDTH // HEADS) + 0.5)

    def heads(self, x: torch.Tensor):
        q, k, v = x.unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        return *(F.rms_norm(t, (WIDTH // HEADS,), self.scale, 1e-6) for t in (q, k)), v

    def forward(self, x: torch.Tensor, timestep: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        b, _, h, w = x.shape
        y = self.patch(x).flatten(2).transpose(1, 2)
        t = F.silu(times(timestep).to(x.dtype))
        shift, scale, gate, shift2, scale2, gate2 = self.change(t)[:, None].chunk(6, -1)
        other, other_scale = self.change_text(t)[:, None].chunk(2, -1)
        normed = F.layer_norm(y, (WIDTH,), eps=1e-6) * (1 + scale) + shift
        words = F.layer_norm(self.text(text), (WIDTH,), eps=1e-6) * (1 + other_scale) + other
        both = (torch.cat(pair, 2) for pair in zip(self.heads(self.qkv_text(words)), self.heads(self.qkv(normed))))
        z = F.scaled_dot_product_attention(*both).transpose(1, 2).flatten(2)[:, text.shape[1] :]
        y = y + gate * self.o(z)
        y = y + gate2 * self.down(
            F.gelu(self.up(F.layer_norm(y, (WIDTH,), eps=1e-6) * (1 + scale2) + shift2), approximate="tanh")
        )
        y = self.out(y).reshape(b, h // 2, w // 2, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", y).reshape(b, 4, h, w)


class TextEncoder(nn.Module):
    """As CLIP's: causal, quick GELU, the vector at the last word taken by argmax of the ids."""

    def __init__(self):
        super().__init__()
        self.word, self.position = nn.Embedding(30, WIDTH), nn.Embedding(20, WIDTH)
        self.norm1, self.norm2, self.last = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down, self.out = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH), nn.Linear(WIDTH, 8, bias=False)

    def forward(self, ids: torch.Tensor):
        b, s = ids.shape
        x = self.word(ids) + self.position(torch.arange(s))[None]
        y = self.norm1(x)
        q, k, v = (f(y).view(b, s, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        mask = torch.full((s, s), torch.finfo(x.dtype).min).triu(1)
        weights = torch.softmax(q * (WIDTH // HEADS) ** -0.5 @ k.transpose(2, 3) + mask, -1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(b, s, WIDTH))
        y = self.up(self.norm2(x))
        x = self.last(x + self.down(y * torch.sigmoid(1.702 * y)))
        pooled = self.out(x[torch.arange(b), ids.argmax(-1)])
        return x, pooled / pooled.norm(dim=-1, keepdim=True)


def noise(n: int):
    return {
        "sample": torch.randn(n, 4, 6 + 2 * n, 8),
        "timestep": torch.randint(0, 1000, (n,)),
        "text": torch.randn(n, 3 + n, TEXT),
    }


NOISE = {"sample": {0: "batch", 2: "height", 3: "width"}, "timestep": {0: "batch"}, "text": {0: "batch", 1: "words"}}

CASES = [
    Case("denoiser", Denoiser, noise, NOISE, dynamic_exporters=("script",)),
    Case(
        "latent_decoder",
        LatentDecoder,
        lambda n: {"latent": torch.randn(n, 4, 3 + n, 5)},
        {"latent": {0: "batch", 2: "height", 3: "width"}},
    ),
    Case(
        "diffusion_transformer",
        DiffusionTransformer,
        noise,
        {k: {0: "batch"} for k in NOISE},
        exporters=("dynamo",),
        sizes=(2,),
    ),
    Case("text_encoder", TextEncoder, lambda n: {"ids": torch.randint(0, 30, (n, 4 * n))}, {"ids": {0: "b", 1: "s"}}),
]
