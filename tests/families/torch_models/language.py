"""Decoders as libraries of language models export them: a padding mask over past and present, positions from that
mask, a cache of keys and values for each layer; encoder-decoders with a second cache; the encoder of speech."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case
from .transformer import HEADS, WIDTH, RMSNorm, rotate_half

SIZE, LAYERS, WORDS = WIDTH // HEADS, 2, 40


@dataclass(frozen=True)
class Style:
    """What sets decoders apart. `place`: "learned", "rotary" (the first `rotated` of a head) or "alibi"; `window` is
    the reach of every second layer, `cap` the bound of scores by tanh."""

    place: str = "rotary"
    kv_heads: int = HEADS
    rotated: int = SIZE
    parallel: bool = False
    gated: bool = True
    norm: type = RMSNorm
    head_norm: bool = False
    window: int | None = None
    cap: float | None = None
    sdpa: bool = False


def mask_of(seen: torch.Tensor, queries: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """What is added to the scores [batch, 1, queries, keys]: `seen` [batch, keys] is 1 for a token, 0 for padding."""
    keys = seen.shape[1]
    row = torch.arange(keys - queries, keys)[:, None]
    column = torch.arange(keys)[None]
    allowed = column <= row
    if window:
        allowed = allowed & (column > row - window)
    allowed = allowed[None, None] & seen[:, None, None, :].bool()
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)


def alibi_of(seen: torch.Tensor) -> torch.Tensor:
    slopes = 2.0 ** (-8.0 * torch.arange(1, HEADS + 1) / HEADS)
    place = (seen.cumsum(-1) - 1) * seen
    return slopes[None, :, None, None] * place[:, None, None, :]


class Layer(nn.Module):
    def __init__(self, style: Style, number: int):
        super().__init__()
        self.style, self.window = style, style.window if number % 2 else None
        make = (lambda: nn.LayerNorm(WIDTH)) if style.norm is nn.LayerNorm else style.norm
        self.norm1, self.norm2 = make(), make()
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=not style.gated), nn.Linear(WIDTH, WIDTH, bias=not style.gated)
        self.k, self.v = (nn.Linear(WIDTH, style.kv_heads * SIZE, bias=not style.gated) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 24, bias=not style.gated), nn.Linear(24, WIDTH, bias=not style.gated)
        self.gate = nn.Linear(WIDTH, 24, bias=False) if style.gated else None
        if style.head_norm:
            self.q_scale, self.k_scale = nn.Parameter(torch.rand(SIZE) + 0.5), nn.Parameter(torch.rand(SIZE) + 0.5)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        turned, kept = x[..., : self.style.rotated], x[..., self.style.rotated :]
        turned = turned * cos + rotate_half(turned) * sin
        return torch.cat([turned, kept], -1) if kept.shape[-1] else turned

    def attend(self, x, seen, angles, past_k, past_v):
        b, s, _ = x.shape
        q = self.q(x).view(b, s, HEADS, SIZE)
        k, v = (f(x).view(b, s, self.style.kv_heads, SIZE) for f in (self.k, self.v))
        if self.style.head_norm:
            q = q * torch.rsqrt(q.pow(2).mean(-1, keepdim=True) + 1e-6) * self.q_scale
            k = k * torch.rsqrt(k.pow(2).mean(-1, keepdim=True) + 1e-6) * self.k_scale
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if angles is not None:
            q, k = self.rotate(q, *angles), self.rotate(k, *angles)
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        groups = HEADS // self.style.kv_heads
        wide = [t[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2) if groups > 1 else t for t in (k, v)]
        mask = mask_of(seen, s, self.window, x.dtype)
        if self.style.place == "alibi":
            mask = mask + alibi_of(seen)
        if self.style.sdpa:
            y = F.scaled_dot_product_attention(q, *wide, attn_mask=mask)
        else:
            scores = torch.matmul(q, wide[0].transpose(2, 3)) * SIZE**-0.5
            if self.style.cap:
                scores = torch.tanh(scores / self.style.cap) * self.style.cap
            y = torch.softmax(scores + mask, -1, dtype=torch.float32).to(x.dtype) @ wide[1]
        return self.o(y.transpose(1, 2).contiguous().reshape(b, s, WIDTH)), k, v

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate is None:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x, seen, angles, past_k, past_v):
        y, k, v = self.attend(self.norm1(x), seen, angles, past_k, past_v)
        if self.style.parallel:
            return x + y + self.feed(self.norm1(x)), k, v
        x = x + y
        return x + self.feed(self.norm2(x)), k, v


class Decoder(nn.Module):
    def __init__(self, style: Style):
        super().__init__()
        self.style, self.word, self.position = style, nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(Layer(style, i) for i in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH) if style.norm is nn.LayerNorm else style.norm()
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, style.rotated, 2) / style.rotated))

    def forward(self, ids, seen, k0, v0, k1, v1):
        s = ids.shape[1]
        places = (seen.cumsum(-1) - 1).masked_fill(seen == 0, 1)[:, -s:]
        x, angles = self.word(ids) * math.sqrt(WIDTH), None
        if self.style.place == "learned":
            x = x + self.position(places)
        if self.style.place == "rotary":
            turns = (
                self.frequencies.float()[None, :, None].expand(ids.shape[0], -1, 1) @ places[:, None].float()
            ).transpose(1, 2)
            turns = torch.cat([turns, turns], -1)[:, None]
            angles = turns.cos().to(x.dtype), turns.sin().to(x.dtype)
        caches = []
        for layer, k, v in zip(self.layers, (k0, k1), (v0, v1)):
            x, k, v = layer(x, seen, angles, k, v)
            caches += [k, v]
        return self.norm(x) @ self.word.weight.T, *caches


STYLES = {
    "gpt2": Style("learned", gated=False, norm=nn.LayerNorm),
    "neox": Style(rotated=2, parallel=True, gated=False, norm=nn.LayerNorm),
    "bloom": Style("alibi", gated=False, norm=nn.LayerNorm),
    "falcon": Style(kv_heads=1, parallel=True, gated=False, norm=nn.LayerNorm, sdpa=True),
    "llama": Style(kv_heads=2, sdpa=True),
    "qwen3": Style(kv_heads=2, head_norm=True, sdpa=True),
    "gemma2": Style(kv_heads=2, window=3, cap=5.0),
}


class Crossed(nn.Module):
    """A step of a decoder beside an encoder: its own cache grows, that of the encoder's keys and values does not.
    `relative`: distances in buckets instead of positions."""

    def __init__(self, relative: bool):
        super().__init__()
        self.relative, self.word, self.position = relative, nn.Embedding(WORDS, WIDTH), nn.Embedding(32, WIDTH)
        self.bias = nn.Embedding(8, HEADS)
        self.norm = nn.ModuleList(RMSNorm() if relative else nn.LayerNorm(WIDTH) for _ in range(4))
        self.q, self.k, self.v, self.o, self.q2, self.o2 = (
            nn.Linear(WIDTH, WIDTH, bias=not relative) for _ in range(6)
        )
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def buckets(self, queries: int, keys: int) -> torch.Tensor:
        distance = torch.arange(keys)[None] - torch.arange(keys - queries, keys)[:, None]
        distance = -torch.min(distance, torch.zeros_like(distance))
        # 17: no bucket ends right at a distance, where halves would round to either side
        large = 4 + (torch.log(distance.float() / 4) / math.log(17 / 4) * 4).to(torch.long)
        large = torch.min(large, torch.full_like(large, 7))
        return torch.where(distance < 4, distance, large)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, HEADS, SIZE).transpose(1, 2)

    def mix(self, q, k, v, added):
        scores = q @ k.transpose(2, 3) * (1.0 if self.relative else SIZE**-0.5)
        weights = torch.softmax((scores if added is None else scores + added).float(), -1).type_as(scores)
        return (weights @ v).transpose(1, 2).reshape(q.shape[0], -1, WIDTH)

    def forward(self, ids, past_k, past_v, cross_k, cross_v, mask):
        past, s = past_k.shape[2], ids.shape[1]
        x = self.word(ids)
        if not self.relative:
            x = x + self.position.weight[past : past + s]
        h = self.norm[0](x)
        k, v = torch.cat([past_k, self.heads(self.k(h))], 2), torch.cat([past_v, self.heads(self.v(h))], 2)
        causal = torch.full((s, past + s), torch.finfo(torch.float32).min).triu(past + 1)[None, None]
        if self.relative:
            causal = causal + self.bias(self.buckets(s, past + s)).permute(2, 0, 1)[None]
        x = x + self.o(self.mix(self.heads(self.q(h)), k, v, causal))
        padding = (1.0 - mask[:, None, None].float()) * torch.finfo(torch.float32).min
        x = x + self.o2(self.mix(self.heads(self.q2(self.norm[1](x))), cross_k, cross_v, padding))
        x = x + self.down(F.gelu(self.up(self.norm[2](x))))
        return self.norm[3](x) @ self.word.weight.T, k, v


class SpeechEncoder(nn.Module):
    """Two convolutions over time, the second with stride, fixed sines, then an attention that gives the decoder's keys
    and values."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(8, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        rates = torch.exp(-math.log(10000) / (WIDTH // 2 - 1) * torch.arange(WIDTH // 2))
        angles = torch.arange(20)[:, None] * rates
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.v, self.o, self.cross_k, self.cross_v = (nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor):
        x = F.gelu(self.conv2(F.gelu(self.conv1(x)))).permute(0, 2, 1)
        x = x + self.places[: x.shape[1]]
        h = self.norm(x)
        q, k, v = (f(h).unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = self.last(x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        return y, *(f(y).unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for f in (self.cross_k, self.cross_v))


def step_inputs(kv_heads: int):
    """Several tokens after a past, one token, and tokens after nothing."""

    def inputs(n: int):
        s, past = {2: (3, 5), 3: (1, 6), 1: (4, 2)}[n]
        seen = torch.ones(n, past + s, dtype=torch.int64)
        if n > 1:
            seen[0, :2] = 0
        caches = {f"{which}{i}": torch.randn(n, kv_heads, past, SIZE) for i in range(LAYERS) for which in "kv"}
        return {"ids": torch.randint(0, WORDS, (n, s)), "seen": seen, **caches}

    return inputs


def crossed_inputs(n: int):
    s, past, source = {2: (3, 5, 7), 3: (1, 9, 4), 1: (1, 2, 6)}[n]
    mask = torch.ones(n, source, dtype=torch.int64)
    mask[0, 3:] = 0
    return {
        "ids": torch.randint(0, WORDS, (n, s)),
        **{name: torch.randn(n, HEADS, past, SIZE) for name in ("past_k", "past_v")},
        **{name: torch.randn(n, HEADS, source, SIZE) for name in ("cross_k", "cross_v")},
        "mask": mask,
    }


STEP = {
    "ids": {0: "batch", 1: "sequence"},
    "seen": {0: "batch", 1: "total"},
    **{f"{which}{i}": {0: "batch", 2: "past"} for i in range(LAYERS) for which in "kv"},
}
CROSSED = {
    "ids": {0: "batch", 1: "sequence"},
    **{name: {0: "batch", 2: "past"} for name in ("past_k", "past_v")},
    **{name: {0: "batch", 2: "source"} for name in ("cross_k", "cross_v")},
    "mask": {0: "batch", 1: "source"},
}

CASES = [
    *(
        Case(f"decoder_{name}", lambda s=style: Decoder(s), step_inputs(style.kv_heads), STEP)
        for name, style in STYLES.items()
    ),
    *(
        Case(name, lambda r=relative: Crossed(r), crossed_inputs, CROSSED)
        for name, relative in (("step_beside_encoder", False), ("step_relative", True))
    ),
    Case(
        "speech_encoder",
        SpeechEncoder,
        lambda n: {"x": torch.randn(n, 8, 8 + 6 * n)},
        {"x": {0: "batch", 2: "frames"}},
    ),
]
