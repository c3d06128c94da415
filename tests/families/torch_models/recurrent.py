"""Recurrent networks and models with control flow."""

from __future__ import annotations

import torch
from torch import nn

from .case import Case


class Tagger(nn.Module):
    def __init__(self, kind: type, **options):
        super().__init__()
        self.word, self.rnn = nn.Embedding(20, 8), kind(8, 6, batch_first=True, **options)
        self.out = nn.Linear(6 * (2 if options.get("bidirectional") else 1), 3)

    def forward(self, ids: torch.Tensor):
        y, state = self.rnn(self.word(ids))
        return self.out(y), *(state if isinstance(state, tuple) else (state,))


class Stepper(nn.Module):
    """One step with the state as input and output."""

    def __init__(self):
        super().__init__()
        self.cell, self.gru = nn.LSTMCell(4, 6), nn.GRUCell(6, 5)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, g: torch.Tensor):
        h, c = self.cell(x, (h, c))
        return h, c, self.gru(h, g)


class PackedLstm(nn.Module):
    """Lengths per row through packed sequences."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, (h, _) = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], h


class ScriptLoop(nn.Module):
    """A loop whose length comes with the input, with a branch in it."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for i in range(int(steps)):
            if i % 2 == 0:
                total = total + torch.tanh(self.a(x)) * i
            else:
                total = total - x
        return total


class ScriptWhile(nn.Module):
    """Halves until small; collects in a list."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parts = []
        count = torch.zeros([], dtype=torch.int64)
        while bool(x.abs().max() > 1.0):
            x = x / 2
            count += 1
            parts.append(x)
        if len(parts) > 0:
            return torch.stack(parts).sum(0), count
        return x, count


class ScriptSlices(nn.Module):
    """Greedy decoding: the sequence grows by a token in each round."""

    def __init__(self):
        super().__init__()
        self.word, self.out = nn.Embedding(11, 6), nn.Linear(6, 11)

    def forward(self, ids: torch.Tensor, rounds: int) -> torch.Tensor:
        for _ in range(rounds):
            logits = self.out(self.word(ids).cumsum(1)[:, -1])
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        return ids


class Cond(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: torch.sin(v) * 2, lambda v: v.cos() - 1, (x,))


class CondNested(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def positive(v):
            return torch.cond(v.max() > 2, lambda u: self.a(u), lambda u: self.b(u), (v,))

        return torch.cond(x.mean() > 0, positive, lambda v: v - 1, (x,)) + x


class ScanSum(nn.Module):
    """A scan by torch's higher-order operator."""

    def forward(self, x: torch.Tensor):
        from torch._higher_order_ops.scan import scan

        return scan(lambda carry, row: (torch.tanh(carry + row), carry * row), torch.zeros_like(x[0]), x)


def ids(n: int):
    return {"ids": torch.randint(0, 20, (n, 3 * n + 1))}


TEXT = {"ids": {0: "batch", 1: "time"}}
SIGNS = (1.0, -1.0, 1.0, 3.0)


def signed(n: int):
    return {"x": torch.rand(3, 4) * (1 if n != 3 else -1) * (4 if n == 1 else 1)}


CASES = [
    Case("lstm", lambda: Tagger(nn.LSTM), ids, TEXT),
    Case("lstm_deep", lambda: Tagger(nn.LSTM, num_layers=2, bidirectional=True), ids, TEXT),
    Case("lstm_no_bias", lambda: Tagger(nn.LSTM, bias=False), ids, TEXT),
    Case("gru", lambda: Tagger(nn.GRU, bidirectional=True), ids, TEXT),
    Case("gru_deep", lambda: Tagger(nn.GRU, num_layers=2), ids, TEXT),
    Case(
        "rnn", lambda: Tagger(nn.RNN, nonlinearity="relu", bidirectional=True), ids, TEXT, dynamic_exporters=("script",)
    ),
    Case(
        "cells",
        Stepper,
        lambda n: {"x": torch.randn(n, 4), "h": torch.randn(n, 6), "c": torch.randn(n, 6), "g": torch.randn(n, 5)},
        {name: {0: "batch"} for name in "xhcg"},
    ),
    Case(
        "lstm_packed",
        PackedLstm,
        lambda n: {"x": torch.randn(3, 6, 4), "lengths": torch.tensor([6, 4, 1 + n])},
        exporters=("script",),
    ),
    Case(
        "loop",
        lambda: torch.jit.script(ScriptLoop()),
        lambda n: {"x": torch.randn(2, 4), "steps": torch.tensor(n + 1)},
        exporters=("script",),
    ),
    Case(
        "while",
        lambda: torch.jit.script(ScriptWhile()),
        lambda n: {"x": torch.randn(2, 4) * 3**n},
        exporters=("script",),
    ),
    Case(
        "greedy",
        lambda: torch.jit.script(ScriptSlices()),
        lambda n: {"ids": torch.randint(0, 11, (2, 3)), "rounds": torch.tensor(n)},
        exporters=("script",),
    ),
    Case("cond", Cond, signed, exporters=("dynamo",)),
    Case("cond_nested", CondNested, signed, exporters=("dynamo",)),
    Case("scan", ScanSum, lambda n: {"x": torch.randn(3 * n, 4)}, {"x": {0: "time"}}, exporters=("dynamo",)),
]
