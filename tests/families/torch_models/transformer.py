"""Transformers: encoders, decoders with a cache, vision transformers, and the parts of large language models."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case

WIDTH, HEADS = 16, 4


class Attention(nn.Module):
    """Separate projections, heads by view and transpose, an additive mask; `how` is how the product is written."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q, k, v = (f(x).view(b, s, HEADS, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.how == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, mask)
        elif self.how == "einsum":
            weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1]) + mask, -1)
            y = torch.einsum("bhqk,bhkd->bhqd", weights, v)
        else:
            weights = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
            y = torch.matmul(torch.softmax(weights + mask, -1), v)
        return self.o(y.permute(0, 2, 1, 3).contiguous().view(b, s, WIDTH))


class Encoder(nn.Module):
    """As BERT: embeddings with positions and types, a padding mask of ones and zeros."""

    def __init__(self, how: str):
        super().__init__()
        self.word, self.position, self.kind = nn.Embedding(30, WIDTH), nn.Embedding(40, WIDTH), nn.Embedding(2, WIDTH)
        self.register_buffer("ids", torch.arange(40)[None])
        self.norm, self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(3))
        self.attention, self.up, self.down = Attention(how), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.pool = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.norm(self.word(ids) + self.position(self.ids[:, : ids.shape[1]]) + self.kind(kinds))
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        x = self.norm1(x + self.attention(x, added))
        x = self.norm2(x + self.down(F.gelu(self.up(x))))
        return x, torch.tanh(self.pool(x[:, 0]))


class CausalLM(nn.Module):
    """As GPT-2: one projection, split, cache by concatenation, mask from arange of past and present."""

    def __init__(self):
        super().__init__()
        self.word, self.position = nn.Embedding(30, WIDTH), nn.Embedding(64, WIDTH)
        self.norm, self.norm2, self.qkv, self.o = (
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 48),
            nn.Linear(WIDTH, WIDTH),
        )
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, ids: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor):
        past, (b, s) = past_k.shape[2], ids.shape
        x = self.word(ids) + self.position(torch.arange(past, past + s))
        q, k, v = (t.view(b, s, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).split(WIDTH, -1))
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        allowed = torch.arange(past + s)[None, :] <= torch.arange(past, past + s)[:, None]
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        y = torch.softmax(scores.masked_fill(~allowed, float("-inf")), -1) @ v
        x = x + self.o(y.transpose(1, 2).reshape(b, s, WIDTH))
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x @ self.word.weight.T, k, v


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class Llama(nn.Module):
    """Grouped heads by expand, rotary positions, SwiGLU, a cache."""

    def __init__(self, kv_heads: int = 2, fused_rope: bool = False):
        super().__init__()
        self.kv, self.d = kv_heads, WIDTH // HEADS
        self.word = nn.Embedding(30, WIDTH)
        self.norm1, self.norm2, self.norm3 = RMSNorm(), RMSNorm(), RMSNorm()
        self.q, self.k, self.v, self.o = (
            nn.Linear(WIDTH, n * self.d, bias=False) for n in (HEADS, kv_heads, kv_heads, HEADS)
        )
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((WIDTH, 40), (WIDTH, 40), (40, WIDTH))
        )
        self.head = nn.Linear(WIDTH, 30, bias=False)
        self.register_buffer("freq", 10000.0 ** (-torch.arange(0, self.d, 2) / self.d))

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor):
        b, s = ids.shape
        x = self.word(ids)
        h = self.norm1(x)
        angles = positions[:, :, None].float() @ self.freq.float()[None, None, :].expand(b, -1, -1)
        cos, sin = (f(torch.cat([angles, angles], -1))[:, None].to(x.dtype) for f in (torch.cos, torch.sin))
        q = self.q(h).view(b, s, HEADS, self.d).transpose(1, 2)
        k, v = (f(h).view(b, s, self.kv, self.d).transpose(1, 2) for f in (self.k, self.v))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        total, groups = k.shape[2], HEADS // self.kv
        wide_k, wide_v = (
            t[:, :, None].expand(b, self.kv, groups, total, self.d).reshape(b, HEADS, total, self.d) for t in (k, v)
        )
        mask = torch.full((s, total), float("-inf")).triu(1 + total - s).to(x.dtype)
        y = F.scaled_dot_product_attention(q, wide_k, wide_v, mask)
        x = x + self.o(y.transpose(1, 2).reshape(b, s, WIDTH))
        h = self.norm2(x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return self.head(self.norm3(x)), k, v


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, 4, 4)
        self.cls, self.position = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 17, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, norm_first=True, activation="gelu")
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.cls.expand(y.shape[0], -1, -1), y], 1) + self.position
        return self.head(self.body(y)[:, 0])


class Windows(nn.Module):
    """As Swin: roll, windows, relative position bias by index, roll back."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o, self.norm = nn.Linear(WIDTH, 48), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.table = nn.Parameter(torch.randn(49, HEADS))
        grid = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        relative = (grid[:, :, None] - grid[:, None]).permute(1, 2, 0) + 3
        self.register_buffer("index", relative[..., 0] * 7 + relative[..., 1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-2, -2), (1, 2))
        y = y.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(y).reshape(y.shape[0], 16, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(16, 16, -1).permute(2, 0, 1)
        y = self.o(
            (torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + bias, -1) @ v)
            .transpose(1, 2)
            .reshape(-1, 16, c)
        )
        y = y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + torch.roll(y, (2, 2), (1, 2))


class T5Bias(nn.Module):
    """Relative positions in logarithmic buckets."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(8, HEADS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = torch.arange(x.shape[1])
        distance = place[None, :] - place[:, None]
        buckets = (distance > 0).long() * 4
        distance = distance.abs()
        large = 2 + (torch.log(distance.float() / 2) / math.log(8) * 2).long()
        buckets = buckets + torch.where(distance < 2, distance, torch.min(large, torch.full_like(large, 3)))
        return x[:, :, :1].unsqueeze(1) + self.bias(buckets).permute(2, 0, 1).unsqueeze(0)


class MixtureOfExperts(nn.Module):
    """Top-2 routing; every expert runs on all tokens, weighted; and the load of each expert."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(4, WIDTH, 24) / 4), nn.Parameter(torch.randn(4, 24, WIDTH) / 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.softmax(self.gate(x), -1)
        weights, chosen = torch.topk(scores, 2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        routed = torch.zeros_like(scores).scatter_(-1, chosen, weights)
        hidden = F.silu(torch.einsum("bsd,edf->besf", x, self.up))
        y = torch.einsum("besf,efd,bse->bsd", hidden, self.down, routed)
        return y, F.one_hot(chosen, 4).sum((0, 1, 2))


class SparseExperts(nn.Module):
    """Each token goes through the weights of its expert, gathered; tokens are sorted by expert first."""

    def __init__(self):
        super().__init__()
        self.gate, self.weight = nn.Linear(WIDTH, 4), nn.Parameter(torch.randn(4, WIDTH, WIDTH) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, chosen = self.gate(x).softmax(-1).max(-1)
        order = torch.argsort(chosen)
        y = torch.bmm(x[order][:, None], self.weight[chosen[order]])[:, 0] * scores[order][:, None]
        return torch.zeros_like(y).index_copy(0, order, y)


def ids(b: int, s: int) -> torch.Tensor:
    return torch.randint(0, 30, (b, s))


def encoder_inputs(n: int):
    mask = torch.ones(n, 4 * n, dtype=torch.int64)
    mask[0, 3:] = 0
    return {"ids": ids(n, 4 * n), "mask": mask, "kinds": torch.randint(0, 2, (n, 4 * n))}


def cache(b: int, heads: int, past: int):
    return {name: torch.randn(b, heads, past, WIDTH // HEADS) for name in ("past_k", "past_v")}


def llama_inputs(kv: int):
    def inputs(n: int):
        s, past = (5, 4) if n == 2 else (1, 7) if n == 1 else (3, 6)
        return {"ids": ids(n, s), "positions": torch.arange(past, past + s)[None].repeat(n, 1), **cache(n, kv, past)}

    return inputs


def vector_inputs(n: int):
    return {"x": torch.randn(n, 3 * n, WIDTH)}


TEXT = {name: {0: "batch", 1: "sequence"} for name in ("ids", "mask", "kinds")}
CACHE = {"past_k": {0: "batch", 2: "past"}, "past_v": {0: "batch", 2: "past"}}
VECTORS = {"x": {0: "batch", 1: "sequence"}}


class Decoder(nn.Module):
    """torch's own decoder layer with a causal mask, and its multi-head attention with a padding mask."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 32, batch_first=True)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        causal = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
        return self.layer(x, memory, causal, memory_key_padding_mask=padding)


def decoder_inputs(n: int):
    padding = torch.zeros(n, 6, dtype=torch.bool)
    padding[:, 4:] = True
    return {"x": torch.randn(n, 5, WIDTH), "memory": torch.randn(n, 6, WIDTH), "padding": padding}


class Causal(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)


CASES = [
    *(
        Case(f"encoder_{how}", lambda how=how: Encoder(how), encoder_inputs, TEXT)
        for how in ("matmul", "einsum", "sdpa")
    ),
    Case("causal_lm", CausalLM, lambda n: {"ids": ids(n, 4), **cache(n, HEADS, 3 * n)}, {"ids": {0: "batch"}, **CACHE}),
    Case(
        "llama",
        Llama,
        llama_inputs(2),
        {"ids": {0: "batch", 1: "sequence"}, "positions": {0: "batch", 1: "sequence"}, **CACHE},
    ),
    Case("llama_one_kv_head", lambda: Llama(1), llama_inputs(1)),
    Case("vision_transformer", VisionTransformer, lambda n: {"x": torch.randn(n, 3, 16, 16)}, {"x": {0: "batch"}}),
    Case("windows", Windows, lambda n: {"x": torch.randn(n, 8, 12, WIDTH)}, {"x": {0: "batch"}}),
    Case("relative_bias", T5Bias, vector_inputs, VECTORS),
    Case("experts_dense", MixtureOfExperts, vector_inputs, VECTORS, dynamic_exporters=("script",)),
    Case("experts_sparse", SparseExperts, lambda n: {"x": torch.randn(5 * n, WIDTH)}, {"x": {0: "tokens"}}),
    Case(
        "decoder_layer", Decoder, decoder_inputs, {"x": {0: "batch"}, "memory": {0: "batch"}, "padding": {0: "batch"}}
    ),
    Case(
        "sdpa_causal",
        Causal,
        lambda n: {name: torch.randn(n, 2, 6, 8) for name in "qkv"},
        {name: {0: "batch"} for name in "qkv"},
    ),
    Case("multi_head_attention", lambda: Packed(), vector_inputs, {"x": {0: "batch"}}, sizes=(2,)),
]


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.attention(x, x, x, need_weights=True)
