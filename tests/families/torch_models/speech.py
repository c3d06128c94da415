"""Speech: connectionist temporal classification, transducers and their greedy search, streaming with state."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case

MELS, HIDDEN, WORDS = 8, 12, 11


def mask_of(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """[batch, size]: True within the length."""
    return torch.arange(size)[None] < lengths[:, None]


class DeepSpeech(nn.Module):
    """Convolutions over time and frequency, masked by length, then a bidirectional network: nn.LSTM or nn.GRU."""

    def __init__(self, kind: type):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, (3, 5), (2, 2), (1, 2)), nn.BatchNorm2d(4)
        self.rnn = kind(4 * MELS // 2, HIDDEN, bidirectional=True, batch_first=True, num_layers=2)
        self.out = nn.Linear(2 * HIDDEN, WORDS)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        y = F.hardtanh(self.norm(self.conv(x[:, None])), 0, 20)
        lengths = torch.div(lengths - 1, 2, rounding_mode="floor") + 1
        y = y * mask_of(lengths, y.shape[3])[:, None, None]
        y = y.flatten(1, 2).transpose(1, 2)
        return F.log_softmax(self.out(self.rnn(y)[0]), -1), lengths


class Conformer(nn.Module):
    """Half feed-forward, attention with relative positions by shifting, gated convolution, half feed-forward."""

    def __init__(self):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.ReLU())
        self.inner = nn.Linear(4, HIDDEN)
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(4))
        self.feed = nn.ModuleList(
            nn.Sequential(nn.Linear(HIDDEN, 24), nn.SiLU(), nn.Linear(24, HIDDEN)) for _ in range(2)
        )
        self.qkv, self.o, self.places = (
            nn.Linear(HIDDEN, 3 * HIDDEN),
            nn.Linear(HIDDEN, HIDDEN),
            nn.Linear(HIDDEN, HIDDEN),
        )
        self.u, self.w = (nn.Parameter(torch.randn(3, 4) / 3) for _ in range(2))
        self.point, self.depth = (
            nn.Conv1d(HIDDEN, 2 * HIDDEN, 1),
            nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1, groups=HIDDEN),
        )
        self.batch_norm, self.point2 = nn.BatchNorm1d(HIDDEN), nn.Conv1d(HIDDEN, HIDDEN, 1)
        self.out = nn.Linear(HIDDEN, WORDS)

    def shift(self, x: torch.Tensor) -> torch.Tensor:
        """[b, h, t, 2t-1] of distances to [b, h, t, t] of places."""
        b, h, t, n = x.shape
        x = F.pad(x, (1, 0)).view(b, h, n + 1, t)
        return x[:, :, 1:].view(b, h, t, n)[..., :t]

    def attend(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 3, 4).unbind(2)
        steps = torch.arange(t - 1, -t, -1.0)
        rates = torch.exp(torch.arange(0, HIDDEN, 2) * -0.5)
        table = torch.stack([(steps[:, None] * rates).sin(), (steps[:, None] * rates).cos()], -1).flatten(1)
        p = self.places(table).view(1, -1, 3, 4).permute(0, 2, 3, 1)
        ac = (q + self.u).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        bd = self.shift((q + self.w).transpose(1, 2) @ p)
        scores = ((ac + bd) / 2).masked_fill(~seen[:, None, None], -1e9)
        weights = torch.softmax(scores, -1).masked_fill(~seen[:, None, None], 0.0)
        return self.o((weights @ v.transpose(1, 2)).transpose(1, 2).reshape(b, t, HIDDEN))

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        y = self.sub(x.transpose(1, 2)[:, None])
        y = self.inner(y.mean(3).transpose(1, 2))
        lengths = ((lengths - 1) // 2 - 1) // 2
        seen = mask_of(lengths, y.shape[1])
        y = y + 0.5 * self.feed[0](self.norms[0](y))
        y = y + self.attend(self.norms[1](y), seen)
        z = F.glu(self.point(self.norms[2](y).transpose(1, 2)), 1).masked_fill(~seen[:, None], 0.0)
        y = y + self.point2(F.silu(self.batch_norm(self.depth(z)))).transpose(1, 2)
        y = y + 0.5 * self.feed[1](self.norms[3](y))
        return self.out(y).log_softmax(-1), lengths


class Predictor(nn.Module):
    """The transducer's network of the words so far, and the joint of it with a frame of the encoder."""

    def __init__(self):
        super().__init__()
        self.word, self.rnn = nn.Embedding(WORDS, HIDDEN), nn.LSTM(HIDDEN, HIDDEN)
        self.frame, self.text, self.out = nn.Linear(HIDDEN, 16), nn.Linear(HIDDEN, 16), nn.Linear(16, WORDS)

    def forward(self, frames: torch.Tensor, ids: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        y, (h, c) = self.rnn(self.word(ids).transpose(0, 1), (h, c))
        joint = self.frame(frames)[:, :, None] + self.text(y.transpose(0, 1))[:, None]
        return self.out(torch.tanh(joint)).log_softmax(-1), h, c


class GreedyTransducer(nn.Module):
    """The search itself in the model: for each frame, words until blank or three of them."""

    def __init__(self):
        super().__init__()
        self.word, self.cell = nn.Embedding(WORDS, HIDDEN), nn.LSTMCell(HIDDEN, HIDDEN)
        self.frame, self.out = nn.Linear(MELS, HIDDEN), nn.Linear(HIDDEN, WORDS)

    def forward(self, x: torch.Tensor, length: int) -> torch.Tensor:
        words = torch.zeros([1], dtype=torch.int64)
        h, c = self.cell(self.word(words))
        for t in range(length):
            emitted = 0
            frame = self.frame(x[t : t + 1])
            best = self.out(torch.tanh(frame + h)).argmax(-1)
            while emitted < 3 and bool(best[0] != 0):
                words = torch.cat([words, best])
                h, c = self.cell(self.word(best), (h, c))
                best = self.out(torch.tanh(frame + h)).argmax(-1)
                emitted += 1
        return words


class Streaming(nn.Module):
    """A chunk of frames with what is kept of those before: the last frames of a convolution and a network's state."""

    def __init__(self):
        super().__init__()
        self.conv, self.rnn, self.out = nn.Conv1d(MELS, HIDDEN, 5), nn.GRU(HIDDEN, HIDDEN, 2), nn.Linear(HIDDEN, WORDS)

    def forward(self, x: torch.Tensor, kept: torch.Tensor, state: torch.Tensor):
        x = torch.cat([kept, x], 2)
        y, state = self.rnn(F.relu(self.conv(x)).permute(2, 0, 1), state)
        return self.out(y).transpose(0, 1), x[:, :, -4:], state


class Collapse(nn.Module):
    """The best path of each frame, repeats and blanks taken out: its length is known only afterwards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best = x.argmax(-1)
        changed = torch.cat([torch.ones(1, dtype=torch.bool), best[1:] != best[:-1]])
        return best[changed & (best != 0)]


class Speaker(nn.Module):
    """Dilated convolutions, squeeze and excitation over time, attentive mean and deviation, a normed embedding."""

    def __init__(self):
        super().__init__()
        self.conv, self.conv2 = nn.Conv1d(MELS, HIDDEN, 5, padding=2), nn.Conv1d(4, 4, 3, padding=2, dilation=2)
        self.norm, self.down, self.up = nn.BatchNorm1d(HIDDEN), nn.Conv1d(HIDDEN, 4, 1), nn.Conv1d(4, HIDDEN, 1)
        self.weigh, self.out = nn.Conv1d(HIDDEN * 3, HIDDEN, 1), nn.Linear(2 * HIDDEN, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(F.relu(self.conv(x)))
        parts, last = [], torch.zeros_like(y[:, :4])
        for part in torch.chunk(y, 3, 1):
            last = F.relu(self.conv2(part + last))
            parts.append(last)
        y = torch.cat(parts, 1)
        y = y * torch.sigmoid(self.up(F.relu(self.down(y.mean(2, keepdim=True)))))
        mean = y.mean(2, keepdim=True).expand_as(y)
        deviation = torch.sqrt(y.var(2, keepdim=True).clamp(min=1e-9)).expand_as(y)
        weights = torch.softmax(self.weigh(torch.cat([y, mean, deviation], 1)), 2)
        mean = (y * weights).sum(2)
        deviation = torch.sqrt(((y**2 * weights).sum(2) - mean**2).clamp(min=1e-9))
        return F.normalize(self.out(torch.cat([mean, deviation], 1)), dim=1)


class LengthRegulator(nn.Module):
    """Speech synthesis: each symbol's vector repeated for as many frames as its predicted duration."""

    def __init__(self):
        super().__init__()
        self.word, self.duration, self.out = nn.Embedding(WORDS, HIDDEN), nn.Linear(HIDDEN, 1), nn.Linear(HIDDEN, MELS)

    def forward(self, ids: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        x = self.word(ids)
        frames = torch.clamp(torch.round(torch.exp(self.duration(x)[..., 0]) * rate), min=1).long()
        ends = torch.cumsum(frames, 1)
        size = ends[:, -1].max()
        place = torch.arange(size)[None, :, None]
        path = (place < ends[:, None]) & (place >= (ends - frames)[:, None])
        return self.out(path.to(x.dtype) @ x)


def features(n: int):
    frames = 16 + 6 * n
    return {"x": torch.randn(n, MELS, frames), "lengths": torch.tensor([frames, frames - 5, frames - 9][:n])}


def transducer_inputs(n: int):
    state = {name: torch.randn(1, n, HIDDEN) for name in "hc"}
    return {"frames": torch.randn(n, 2 * n, HIDDEN), "ids": torch.randint(0, WORDS, (n, n)), **state}


FEATURES = {"x": {0: "batch", 2: "frames"}, "lengths": {0: "batch"}}

CASES = [
    *(
        Case(f"deep_speech_{kind.__name__.lower()}", lambda k=kind: DeepSpeech(k), features, FEATURES)
        for kind in (nn.LSTM, nn.GRU)
    ),
    Case("conformer", Conformer, features, FEATURES),
    Case(
        "transducer",
        Predictor,
        transducer_inputs,
        {
            "frames": {0: "batch", 1: "frames"},
            "ids": {0: "batch", 1: "words"},
            **{name: {1: "batch"} for name in "hc"},
        },
    ),
    Case(
        "transducer_search",
        lambda: torch.jit.script(GreedyTransducer()),
        lambda n: {"x": torch.randn(5 * n, MELS) * 3, "length": torch.tensor(5 * n)},
        {"x": {0: "frames"}},
        exporters=("script",),
    ),
    Case(
        "streaming",
        Streaming,
        lambda n: {
            "x": torch.randn(n, MELS, 4 * n),
            "kept": torch.randn(n, MELS, 4),
            "state": torch.randn(2, n, HIDDEN),
        },
        {"x": {0: "batch", 2: "frames"}, "kept": {0: "batch"}, "state": {1: "batch"}},
    ),
    Case("best_path", Collapse, lambda n: {"x": torch.randn(9 * n, 4)}, {"x": {0: "frames"}}),
    Case("speaker", Speaker, lambda n: {"x": torch.randn(n, MELS, 9 + 4 * n)}, {"x": {0: "batch", 2: "frames"}}),
    Case(
        "length_regulator",
        LengthRegulator,
        lambda n: {"ids": torch.randint(0, WORDS, (n, 3 * n)), "rate": torch.tensor(float(n))},
        {"ids": {0: "batch", 1: "symbols"}},
        dynamic_exporters=("script",),
    ),
]
