"""Single functions of torch, each in the form that its exporters give it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case, Function, Function2

BATCH = {"x": {0: "batch"}}


def plain(n: int):
    return {"x": torch.randn(n, 3, 4)}


def pair(n: int):
    return {"x": torch.randn(n, 3, 4), "y": torch.randn(n, 3, 4)}


def case(name: str, function, inputs=plain, dynamic=None, **options) -> Case:
    given = inputs(2)
    dynamic = {name: {0: "batch"} for name in given} if dynamic is None else dynamic
    if name in NOT_SCRIPT:
        options["exporters"] = ("dynamo",)
    if name in NOT_DYNAMO:
        options["exporters"] = ("script",)
    if name == "take_along":
        options["dynamic_exporters"] = ()
    if name in TORCH:
        options["reference"] = "torch"
    kind = Function if len(given) == 1 else Function2
    return Case(name, lambda: kind(function), inputs, dynamic, sizes=(2, 3), **options)


#: What the exporter on TorchScript refuses, or writes so that ONNX Runtime refuses it.
NOT_SCRIPT = {
    "threshold",
    "expm1",
    "trunc",
    "frac",
    "logaddexp",
    "heaviside",
    "bitwise",
    "sinc",
    "bfloat",
    "rot90",
    "diag",
    "take_along",
    "bilinear",
    "huber",
}


#: What the exporter on torch.export refuses.
NOT_DYNAMO = {"rrelu", "masked_select", "cdist"}
#: ONNX Runtime leaves roundings to 16 bits out, or has no such operator.
TORCH = {"half", "bfloat"}


class EmbeddingBag(nn.Module):
    def __init__(self, mode: str):
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode=mode)

    def forward(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.bag(x, offsets)


class EmbeddingRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode="sum")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bag(x)


def write(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1] = 7.0
    y[:, :, 1:3] += 1
    y[:, ::2, 0] *= 2
    return y


def masked(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[y < 0] = 0.5
    return y


def put(x: torch.Tensor) -> torch.Tensor:
    return x.index_put((torch.tensor([0, 1]), torch.tensor([2, 0])), torch.tensor(5.0), accumulate=True)


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "softplus": lambda x: F.softplus(x, 2, 5),
    "softsign": F.softsign,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "tanhshrink": F.tanhshrink,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "logsigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, -3.0),
    "glu": lambda x: F.glu(x, -1),
    "softmin": lambda x: F.softmin(x, 1),
    "rrelu": F.rrelu,
}
MATH = {
    "erf": torch.erf,
    "expm1": torch.expm1,
    "log1p": lambda x: torch.log1p(x.abs()),
    "log2": lambda x: torch.log2(x.abs() + 1),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "atan2": lambda x: torch.atan2(x, x + 1),
    "trunc": torch.trunc,
    "frac": torch.frac,
    "round": lambda x: torch.round(x * 4),
    "floor_divide": lambda x: torch.floor_divide(x, 0.3),
    "remainder": lambda x: torch.remainder(x, 0.7),
    "fmod": lambda x: torch.fmod(x, 0.7),
    "sign": torch.sign,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "pow": lambda x: x.abs() ** 1.7,
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "logaddexp": lambda x: torch.logaddexp(x, 1 - x),
    "nan_to_num": lambda x: torch.nan_to_num(x / (x > 0).float(), 1.5),
    "isfinite": lambda x: torch.isfinite(x.log()),
    "logit": lambda x: torch.logit(torch.sigmoid(x), 1e-3),
    "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.5)),
    "bitwise": lambda x: ((x * 10).int() & 6) | ((x * 3).int() ^ 1) << 2,
    "sinc": torch.sinc,
    "half": lambda x: (x.half() * 2).float(),
    "double": lambda x: (x.double() / 3).cos(),
    "bfloat": lambda x: (x.bfloat16() * 2).float(),
}
REDUCTIONS = {
    "mean": lambda x: x.mean((0, 2)),
    "var": lambda x: torch.var_mean(x, -1),
    "std": lambda x: x.std(1, unbiased=False),
    "norm": lambda x: x.norm(dim=-1, keepdim=True),
    "norm1": lambda x: torch.linalg.vector_norm(x, 1, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: (x.amax((1, 2)), x.amin(0)),
    "any": lambda x: ((x > 1).any(-1), (x > -2).all()),
    "argmax": lambda x: (x.argmax(), x.argmin(1)),
    "sort": lambda x: x.sort(-1, descending=True),
    "kthvalue": lambda x: torch.topk(x, 2, 1, largest=False),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.sum().expand(2),
    "unique": lambda x: (x * 2).round().unique(return_inverse=True, return_counts=True),
    "nonzero": lambda x: (x > 0).nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "count_nonzero": lambda x: (x > 0).sum(1),
    "bincount": lambda x: x.flatten().abs().long().clamp(max=3).eq(1).sum(),
    "softmax_flat": lambda x: x.flatten(1).softmax(-1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0), -1),
}
SHAPES = {
    "flip": lambda x: x.flip(1, 2),
    "roll": lambda x: x.roll((1, -2), (1, 2)),
    "rot90": lambda x: x.rot90(1, (1, 2)),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "tile": lambda x: x.tile((2, 1)),
    "expand": lambda x: x[:, None].expand(-1, 2, -1, -1),
    "unfold": lambda x: x.unfold(2, 3, 1),
    "pixel_shuffle": lambda x: F.pixel_unshuffle(
        F.pixel_shuffle(x.repeat(1, 4, 1)[:, :, None].expand(-1, -1, 4, -1), 2), 2
    ),
    "stack": lambda x: torch.stack([x, x * 2], -1),
    "split": lambda x: x.split([1, 2], 1),
    "chunk": lambda x: x.chunk(2, -1),
    "unbind": lambda x: x.unbind(1)[2],
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(-1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "diag": lambda x: torch.diag_embed(x[:, 0]),
    "gather": lambda x: x.gather(1, (x[:, :1] > 0).long()),
    "take_along": lambda x: torch.take_along_dim(x, x.argsort(-1), -1),
    "index_select": lambda x: x.index_select(2, torch.tensor([3, 0, 0])),
    "advanced_index": lambda x: x[:, [0, 2], 1:],
    "two_indices": lambda x: x[:, [0, 2], [1, 3]],
    "mask_index": lambda x: x[x[:, 0, 0] > 0],
    "write": write,
    "masked_write": masked,
    "index_put": put,
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, (x > 0).long(), x),
    "scatter_reduce": lambda x: x.scatter_reduce(1, (x > 0).long(), x * 2, "amax"),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 1, -9),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="xy"),
    "pad_circular": lambda x: F.pad(x, (1, 2), mode="circular"),
    "pad_negative": lambda x: F.pad(x, (-1, 1, 0, 2), value=3.0),
    "one_hot": lambda x: F.one_hot((x[:, 0] > 0).long(), 2),
    "linspace": lambda x: x + torch.linspace(0, 1, 4),
    "arange": lambda x: x[:, :, 0] + torch.arange(x.shape[1]),
    "full": lambda x: torch.full((x.shape[0], 2), 3.5),
    "swapaxes": lambda x: x.swapaxes(0, 2).movedim(1, 0),
    "squeeze": lambda x: x[:, :1].squeeze(1).unsqueeze(-1),
    "view_as": lambda x: x.reshape(x.shape[0], -1, 2).contiguous(),
    "size_math": lambda x: x.reshape(x.shape[0] * 3, 4)[: x.shape[0] + 1] / x.shape[0],
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])),
}
PRODUCTS = {
    "einsum_batch": lambda x, y: torch.einsum("bij,bkj->bik", x, y),
    "einsum_outer": lambda x, y: torch.einsum("bij,bkl->ijkl", x, y),
    "einsum_trace": lambda x, y: torch.einsum("bii,bjj->b", x[:, :, :3], y[:, :, :3]),
    "baddbmm": lambda x, y: torch.baddbmm(x[:, :, :3], x, y.transpose(1, 2), beta=0.5, alpha=2),
    "tensordot": lambda x, y: torch.tensordot(x[0], y[0], ([0, 1], [0, 1])),
    "cdist": lambda x, y: torch.cdist(x, y),
    "cross": lambda x, y: torch.linalg.cross(x[..., :3], y[..., :3]),
    "matmul_vector": lambda x, y: torch.matmul(x, y[0, 0]),
    "bilinear": lambda x, y: F.bilinear(x, y, torch.ones(2, 4, 4) / 3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.3),
    "kl": lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    "mse": lambda x, y: F.mse_loss(x, y),
    "huber": lambda x, y: F.huber_loss(x, y),
    "cross_entropy": lambda x, y: F.cross_entropy(x, (y[:, 0] > 0).long()),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "max": torch.maximum,
    "outer": lambda x, y: torch.outer(x[0, 0], y[0, 0]),
    "compare": lambda x, y: ((x > y) & (x < 1)) | ~(y >= 0),
    "weighted_norm": lambda x, y: F.group_norm(x, 3, y[0, :, 0], y[0, :, 1]),
}

CASES = [
    *(case(name, function) for name, function in {**ACTIVATIONS, **MATH}.items()),
    *(case(name, function) for name, function in {**REDUCTIONS, **SHAPES}.items()),
    *(case(name, function, pair) for name, function in PRODUCTS.items()),
    *(
        Case(
            f"embedding_bag_{mode}",
            lambda mode=mode: EmbeddingBag(mode),
            lambda n: {"x": torch.randint(0, 10, (6,)), "offsets": torch.tensor([0, n])},
        )
        for mode in ("sum", "mean", "max")
    ),
    Case("embedding_rows", EmbeddingRows, lambda n: {"x": torch.randint(0, 10, (n, 5))}, BATCH),
]
