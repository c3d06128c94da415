"""Sequences without attention over all pairs: state spaces, retention, linear attention; experts whose weights are gathered
for each token."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case

WIDTH, HEADS, STATE, CHUNK = 32, 4, 8, 4


def segment_sums(x: torch.Tensor) -> torch.Tensor:
    total = x.cumsum(-1)
    inside = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).tril()
    return (total[..., :, None] - total[..., None, :]).masked_fill(~inside, -torch.inf)


class StateSpaceDual(nn.Module):
    """As Mamba 2: chunks, within them by products, between them by their states."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(WIDTH, WIDTH + 2 * STATE + HEADS), nn.Linear(WIDTH, WIDTH)
        self.decay = nn.Parameter(-torch.rand(HEADS) - 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        u, b, c, step = self.enter(x).split([WIDTH, STATE, STATE, HEADS], -1)
        step = F.softplus(step)
        u = (u.view(n, length, HEADS, -1) * step[..., None]).view(n, -1, CHUNK, HEADS, WIDTH // HEADS)
        a = (self.decay * step).view(n, -1, CHUNK, HEADS).permute(0, 3, 1, 2)
        b, c = b.view(n, -1, CHUNK, STATE), c.view(n, -1, CHUNK, STATE)
        total = a.cumsum(-1)
        inside = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, segment_sums(a).exp(), u)
        left = torch.einsum("bcln,bhcl,bclhp->bchpn", b, (total[..., -1:] - total).exp(), u)
        left = torch.cat([torch.zeros_like(left[:, :1]), left], 1)
        between = segment_sums(F.pad(total[..., -1], (1, 0))).exp()
        before = torch.einsum("bhzc,bchpn->bzhpn", between, left)[:, :-1]
        outside = torch.einsum("bcln,bchpn,bhcl->bclhp", c, before, total.exp())
        return self.leave((inside + outside).reshape(n, length, WIDTH))


class SelectiveScan(nn.Module):
    """As Mamba: a convolution over time, then a state that each step decays and feeds."""

    def __init__(self, steps: int = 6):
        super().__init__()
        self.steps, self.enter = steps, nn.Linear(WIDTH, 2 * WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 4, padding=3, groups=WIDTH)
        self.select, self.step = nn.Linear(WIDTH, 4 + 2 * STATE), nn.Linear(4, WIDTH)
        self.decay = nn.Parameter(torch.arange(1.0, STATE + 1).log().repeat(WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, gate = self.enter(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : self.steps]).transpose(1, 2)
        step, b, c = self.select(u).split([4, STATE, STATE], -1)
        step = F.softplus(self.step(step))
        kept = torch.exp(step[..., None] * -self.decay.exp())
        fed = (step * u)[..., None] * b[:, :, None]
        state, results = torch.zeros_like(fed[:, 0]), []
        for i in range(self.steps):
            state = kept[:, i] * state + fed[:, i]
            results.append((state @ c[:, i, :, None])[..., 0])
        return torch.stack(results, 1) * F.silu(gate)


class Retention(nn.Module):
    """As RetNet in its parallel form: products that fade with the distance."""

    def __init__(self):
        super().__init__()
        self.project, self.leave = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm = nn.GroupNorm(HEADS, WIDTH)
        self.register_buffer("fading", 1 - 2.0 ** (-5 - torch.arange(HEADS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        q, k, v, gate = self.project(x).chunk(4, -1)
        q, k, v = (t.view(n, length, HEADS, -1).transpose(1, 2) for t in (q, k, v))
        apart = (torch.arange(length)[:, None] - torch.arange(length)).float()
        fading = torch.where(apart >= 0, self.fading[:, None, None] ** apart.clamp(min=0), 0.0)
        scores = q @ k.transpose(-1, -2) * fading
        scores = scores / scores.abs().sum(-1, keepdim=True).clamp(min=1)
        y = self.norm((scores @ v).transpose(1, 2).reshape(n * length, WIDTH)).view(n, length, WIDTH)
        return self.leave(F.silu(gate) * y)


class LinearAttention(nn.Module):
    """Causal, by running sums of outer products."""

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        q, v, k = F.elu(q) + 1, k, F.elu(k) + 1
        sums = (k[..., :, None] @ v[..., None, :]).cumsum(2)
        whole = (q[..., None, :] @ k.cumsum(2)[..., :, None])[..., 0]
        return (q[..., None, :] @ sums)[..., 0, :] / (whole + 1e-6)


class GatheredExperts(nn.Module):
    """Weights of the best experts of each token, as the reference code of GPT-OSS has it."""

    def __init__(self, experts: int = 6, hidden: int = 24):
        super().__init__()
        self.gate = nn.Linear(WIDTH, experts)
        self.rise = nn.Parameter(torch.randn(experts, 2 * hidden, WIDTH) / 6)
        self.fall = nn.Parameter(torch.randn(experts, WIDTH, hidden) / 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, experts = self.gate(x).topk(2, -1)
        a, b = torch.einsum("td,tkhd->tkh", x, self.rise[experts]).chunk(2, -1)
        y = torch.einsum("tkh,tkdh->tkd", a * torch.sigmoid(1.702 * a) * (b + 1), self.fall[experts])
        return (y * best.softmax(-1)[..., None]).sum(1)


def sequence(n: int):
    return {"x": torch.randn(2, CHUNK * n, WIDTH)}


LENGTH = {"x": {1: "length"}}
CASES = [
    Case("state_space_dual", StateSpaceDual, sequence, LENGTH, dynamic_exporters=("script",)),
    Case("selective_scan", SelectiveScan, lambda n: {"x": torch.randn(n, 6, WIDTH)}, {"x": {0: "batch"}}),
    Case("retention", Retention, sequence, LENGTH),
    Case(
        "linear_attention",
        LinearAttention,
        lambda n: {"q": torch.randn(2, 3, 5 * n, 8), "k": torch.randn(2, 3, 5 * n, 8)},
        {"q": {2: "length"}, "k": {2: "length"}},
    ),
    Case("experts_gathered", GatheredExperts, lambda n: {"x": torch.randn(3 * n, WIDTH)}, {"x": {0: "tokens"}}),
]
