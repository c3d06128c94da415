"""Whole networks in bfloat16: which memory is narrow, and how far results are from those of float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox

ml_dtypes = pytest.importorskip("ml_dtypes")
BF16 = ml_dtypes.bfloat16


def model(nodes: Sequence[onnx.NodeProto], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray],
          outputs: Sequence[str], result: int = TensorProto.FLOAT) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()]
    results = [helper.make_tensor_value_info(n, result, None) for n in outputs]
    values = [helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v.tobytes(), raw=True) for n, v in constants.items()]
    graph = helper.make_graph(list(nodes), "narrow", infos, results, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def narrow(m: onnx.ModelProto, feeds: dict[str, np.ndarray], **options: object) -> tuple[dict[str, np.ndarray], str]:
    """Results in the evaluator, for fixed and (asserted alike) dynamic sizes, and the plan."""
    notes: list[str] = []
    session = tensorbox.Session(m, compile=False, precision="bf16", log=notes.append, **options)
    if any("and nothing else" in n for n in notes):
        pytest.skip("this CPU multiplies float32 faster than bfloat16")
    got = session.run(feeds)
    dynamic = tensorbox.Session(m, compile=False, precision="bf16", all_dims_dynamic=True, **options).run(feeds)
    for name, value in got.items():
        assert value.shape == dynamic[name].shape
        assert far(dynamic[name], value.astype(np.float64)) < 0.01
    return got, session.dump("plan")


def far(got: np.ndarray, want: np.ndarray) -> float:
    """The error relative to the size of the whole."""
    if not want.size:
        return 0
    return float(np.linalg.norm(got.astype(np.float64) - want) / max(np.linalg.norm(want), 1e-30))


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(BF16).astype(np.float64)


@pytest.mark.parametrize("rows", [0, 1, 7, 128])
def test_memory_between_products_is_narrow_and_sums_are_not(rows: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, 256)).astype(np.float32)
    w, v = (rng.standard_normal(s).astype(np.float32) / 16 for s in ((256, 512), (512, 256)))
    b = rng.standard_normal(512).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["u"]),
             helper.make_node("Relu", ["u"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"])]
    got, plan = narrow(model(nodes, {"x": x}, {"w": w, "b": b, "v": v}, ["y"]), {"x": x})
    assert "bfloat16" in plan
    assert got["y"].dtype == np.float32 and got["y"].shape == (rows, 256)
    # Exactly these roundings, and no other: operands, and the one store between the products.
    hidden = np.maximum(rounded(x) @ rounded(w) + b, 0)
    want = rounded(hidden) @ rounded(v)
    assert far(got["y"], want) < 1e-3  # a tie of the store may fall either way
    assert far(got["y"], np.maximum(x.astype(np.float64) @ w + b, 0) @ v) < 8e-3


def test_a_transformer_block_stays_within_its_stated_error() -> None:
    rng = np.random.default_rng(2)
    s, d, h = 64, 256, 4
    x = rng.standard_normal((1, s, d)).astype(np.float32)
    c = {n: (rng.standard_normal(sh) / np.sqrt(sh[0])).astype(np.float32)
         for n, sh in {"wq": (d, d), "wk": (d, d), "wv": (d, d), "wo": (d, d), "w1": (d, 4 * d), "w2": (4 * d, d)}.items()}
    c |= {"g": rng.standard_normal(d).astype(np.float32), "b": rng.standard_normal(d).astype(np.float32),
          "scale": np.array(1 / np.sqrt(d // h), np.float32), "heads": np.array([1, s, h, d // h]), "joined": np.array([1, s, d])}
    n = helper.make_node
    nodes = [n("LayerNormalization", ["x", "g", "b"], ["ln"])]
    for k in "qkv":
        nodes += [n("MatMul", ["ln", f"w{k}"], [f"{k}0"]), n("Reshape", [f"{k}0", "heads"], [f"{k}1"]),
                  n("Transpose", [f"{k}1"], [k], perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3])]
    nodes += [n("MatMul", ["q", "k"], ["s0"]), n("Mul", ["s0", "scale"], ["s1"]), n("Softmax", ["s1"], ["p"]), n("MatMul", ["p", "v"], ["a0"]),
              n("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]), n("Reshape", ["a1", "joined"], ["a2"]), n("MatMul", ["a2", "wo"], ["a3"]),
              n("Add", ["a3", "x"], ["r"]), n("LayerNormalization", ["r", "g", "b"], ["ln2"]), n("MatMul", ["ln2", "w1"], ["f0"]),
              n("Gelu", ["f0"], ["f1"]), n("MatMul", ["f1", "w2"], ["f2"]), n("Add", ["f2", "r"], ["y"])]
    got, plan = narrow(model(nodes, {"x": x}, c, ["y"]), {"x": x})
    assert far(got["y"], block_in_double(x, c, h)) < 1e-2
    # Nothing between the products is float32 but scores, which a Softmax reads, and the output.
    wide = [line for line in plan.splitlines() if "arena float32" in line]
    assert all(f"{s}, {s}]" in line for line in wide), wide


def block_in_double(x: np.ndarray, c: dict[str, np.ndarray], h: int) -> np.ndarray:
    from math import erf
    x = x.astype(np.float64)
    _, s, d = x.shape

    def norm(v: np.ndarray) -> np.ndarray:
        m = v.mean(-1, keepdims=True)
        return (v - m) / np.sqrt(((v - m) ** 2).mean(-1, keepdims=True) + 1e-5) * c["g"] + c["b"]

    def heads(v: np.ndarray) -> np.ndarray:
        return v.reshape(s, h, d // h).transpose(1, 0, 2)

    q, k, v = (heads((norm(x) @ c[f"w{n}"])[0]) for n in "qkv")
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(d // h)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    r = (p @ v).transpose(1, 0, 2).reshape(1, s, d) @ c["wo"] + x
    f = norm(r) @ c["w1"]
    return (0.5 * f * (1 + np.vectorize(erf)(f / np.sqrt(2)))) @ c["w2"] + r


@pytest.mark.parametrize(("group", "strides", "channels"), [(1, [1, 1], 64), (1, [2, 2], 33), (64, [1, 1], 64)])
def test_convolutions_with_bias_residual_and_activation(group: int, strides: list[int], channels: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 64, 28, 28)).astype(np.float32)
    w = (rng.standard_normal((64, 64, 1, 1)) / 8).astype(np.float32)
    u = (rng.standard_normal((channels, 64 // group, 3, 3)) / np.sqrt(576 / group)).astype(np.float32)
    b = rng.standard_normal(channels).astype(np.float32)
    same = channels == 64 and strides == [1, 1]
    nodes = [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["s"]),
             helper.make_node("Conv", ["s", "u", "b"], ["v"], pads=[1, 1, 1, 1], group=group, strides=strides),
             *([helper.make_node("Add", ["v", "s"], ["z"])] if same else [helper.make_node("Identity", ["v"], ["z"])]),
             helper.make_node("Relu", ["z"], ["y"])]
    got, plan = narrow(model(nodes, {"x": x}, {"w": w, "u": u, "b": b}, ["y"]), {"x": x})
    assert "bfloat16" in plan
    first = np.maximum(np.einsum("nchw,oc->nohw", x.astype(np.float64), w[:, :, 0, 0]), 0)
    padded = np.pad(first, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = 28 // strides[0]
    want = np.zeros((1, channels, out, out)) + b[:, None, None]
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i:i + 28:strides[0], j:j + 28:strides[1]]
            want += part * u[None, :, 0, i, j, None, None] if group > 1 else np.einsum("nchw,oc->nohw", part, u[:, :, i, j])
    if same:
        want = want + first
    assert far(got["y"], np.maximum(want, 0)) < 8e-3


def test_what_is_sensitive_sees_float32() -> None:
    # Angles of rotary embeddings: positions beyond 256 are no bfloat16, and a sine of them would be noise.
    rng = np.random.default_rng(4)
    position = np.arange(1000, 1064, dtype=np.float32)[:, None]
    frequency = (10000.0 ** (-np.arange(32) / 32)).astype(np.float32)[None]
    x = rng.standard_normal((64, 256)).astype(np.float32)
    w = (rng.standard_normal((256, 32)) / 16).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["position", "frequency"], ["angle"]), helper.make_node("Sin", ["angle"], ["sine"]),
             helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "sine"], ["y"])]
    got, _ = narrow(model(nodes, {"x": x, "position": position}, {"w": w, "frequency": frequency}, ["y", "sine"]), {"x": x, "position": position})
    angle = (position * frequency).astype(np.float64)  # each element one float32 product
    assert np.abs(got["sine"] - np.sin(angle)).max() < 1e-6
    assert far(got["y"], (x.astype(np.float64) @ w) * np.sin(angle)) < 8e-3


def test_scores_reach_softmax_as_float32() -> None:
    rng = np.random.default_rng(5)
    x = (4 * rng.standard_normal((96, 64))).astype(BF16).astype(np.float32)
    w = rng.standard_normal((64, 96)).astype(BF16).astype(np.float32) / 8
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Softmax", ["s"], ["y"])]
    got, _ = narrow(model(nodes, {"x": x}, {"w": w}, ["y"]), {"x": x})
    s = x.astype(np.float64) @ w.astype(np.float64)
    p = np.exp(s - s.max(-1, keepdims=True))
    assert np.abs(got["y"] - p / p.sum(-1, keepdims=True)).max() < 2e-6  # operands are exact, so nothing was rounded


def test_views_of_what_an_output_shows_stay_float32() -> None:
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((32, 64)).astype(np.float32), (rng.standard_normal((64, 64)) / 8).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["r"]), helper.make_node("Transpose", ["r"], ["y"]),
             helper.make_node("MatMul", ["r", "w"], ["z"]), helper.make_node("Split", ["z"], ["z0", "z1"], axis=1, num_outputs=2),
             helper.make_node("MatMul", ["z0", "z1"], ["q"])]
    nodes[-1].input[0] = "z0t"
    nodes.insert(-1, helper.make_node("Transpose", ["z0"], ["z0t"]))
    got, _ = narrow(model(nodes, {"x": x}, {"w": w}, ["y", "q"]), {"x": x})
    t = np.maximum(rounded(x) @ rounded(w), 0)
    assert np.abs(got["y"] - t.T).max() < 1e-5
    z = t @ w.astype(np.float64)
    assert far(got["q"], z[:, :32].T @ z[:, 32:]) < 1.5e-2


@pytest.mark.parametrize(("queries", "keys"), [(512, 512), (128, 128), (49, 49), (1, 300), (3, 77), (20, 1)])
def test_attention_reads_and_writes_bfloat16(queries: int, keys: int) -> None:
    rng = np.random.default_rng(8)
    h, d = 2, 32
    x, m = (rng.standard_normal((1, s, h * d)).astype(np.float32) for s in (queries, keys))
    w = {n: (rng.standard_normal((h * d, h * d)) / np.sqrt(h * d)).astype(np.float32) for n in ("wq", "wk", "wv", "wo")}
    n = helper.make_node
    nodes = []
    for name, source, perm in (("q", "x", [0, 2, 1, 3]), ("k", "m", [0, 2, 3, 1]), ("v", "m", [0, 2, 1, 3])):
        nodes += [n("MatMul", [source, f"w{name}"], [f"{name}0"]), n("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
                  n("Transpose", [f"{name}1"], [name], perm=perm)]
    nodes += [n("MatMul", ["q", "k"], ["s"]), n("Add", ["s", "mask"], ["t"]), n("Softmax", ["t"], ["p"]), n("MatMul", ["p", "v"], ["a"]),
              n("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]), n("Reshape", ["b", "joined"], ["c"]), n("MatMul", ["c", "wo"], ["y"])]
    mask = np.where(rng.random((1, 1, 1, keys)) < 0.2, np.finfo(np.float32).min, 0).astype(np.float32)
    mask[..., 0] = 0
    constants = w | {"heads": np.array([1, -1, h, d]), "joined": np.array([1, -1, h * d]), "mask": mask}
    got, _ = narrow(model(nodes, {"x": x, "m": m}, constants, ["y"]), {"x": x, "m": m})

    def heads(v: np.ndarray) -> np.ndarray:
        return v.astype(np.float64).reshape(-1, h, d).transpose(1, 0, 2)

    q, k, v = heads(x @ w["wq"]), heads(m @ w["wk"]), heads(m @ w["wv"])
    s = q @ k.transpose(0, 2, 1) + mask[0]
    e = np.exp(s - s.max(-1, keepdims=True))
    want = ((e / e.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(1, queries, h * d) @ w["wo"]
    # Scores of size 6 of operands known to 2^-9 move the largest shares by some hundredths.
    assert far(got["y"], want) < 2.5e-2


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_model_of_bfloat16_multiplies_it(rows: int) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((rows, 256)).astype(BF16)
    w, v = ((rng.standard_normal(s) / 16).astype(BF16) for s in ((256, 384), (384, 256)))
    b = rng.standard_normal(384).astype(BF16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["u"]),
             helper.make_node("Relu", ["u"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"])]
    m = model(nodes, {"x": x}, {"w": w, "b": b, "v": v}, ["y"], TensorProto.BFLOAT16)
    got, plan = narrow(m, {"x": x})
    strict = tensorbox.Session(m, compile=False)
    hidden = np.maximum(x.astype(np.float64) @ w.astype(np.float64) + b.astype(np.float64), 0)
    want = rounded(hidden) @ v.astype(np.float64)
    for result in (got["y"], strict.run({"x": x})["y"]):
        assert result.dtype == BF16
        assert far(result, want) < 4e-3
    # No float32 copy of the weights or of what lies between the products.
    assert "arena float32" not in strict.dump("plan") and "constant float32 [256" not in strict.dump("plan")


def test_weights_that_embeddings_share_are_narrow_where_they_multiply() -> None:
    rng = np.random.default_rng(12)
    table = rng.standard_normal((301, 64)).astype(np.float32)
    ids = rng.integers(0, 301, (1, 17))
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"]), helper.make_node("Relu", ["x"], ["r"]),
             helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]), helper.make_node("MatMul", ["r", "turned"], ["y"])]
    # Folded, as tables of this size are, the turned one would be a constant of its own.
    got, plan = narrow(model(nodes, {"ids": ids}, {"table": table}, ["y"]), {"ids": ids}, disable_passes=["fold_constants", "dequantize_weights"])
    want = rounded(np.maximum(table[ids], 0)) @ rounded(table).T
    assert far(got["y"], want) < 1e-5
    assert "constant bfloat16 [301, 64]" in plan


def test_a_product_behind_one_of_float32_multiplies_bfloat16() -> None:
    rng = np.random.default_rng(13)
    x, w = rng.standard_normal((9, 4, 64)).astype(np.float32), (rng.standard_normal((256, 32)) / 16).astype(np.float32)
    k = (rng.standard_normal((4, 64, 64)) / 8).astype(np.float32)
    # The first product is one of two inputs, thus of float32; its result is seen in another order.
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), helper.make_node("MatMul", ["t", "k"], ["p"]),
             helper.make_node("Transpose", ["p"], ["u"], perm=[1, 0, 2]), helper.make_node("Reshape", ["u", "shape"], ["v"]),
             helper.make_node("MatMul", ["v", "w"], ["y"])]
    got, plan = narrow(model(nodes, {"x": x, "k": k}, {"w": w, "shape": np.array([9, 256])}, ["y"]), {"x": x, "k": k})
    inner = (x.astype(np.float64).transpose(1, 0, 2) @ k).transpose(1, 0, 2).reshape(9, 256)
    assert far(got["y"], rounded(inner) @ rounded(w)) < 1e-3  # a tie of the store may fall either way
    assert "arena bfloat16 [9, 256]" in plan


def layers_of(dtype: np.dtype | type) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A product, a convolution, one of two inputs, a recurrent layer and an attention, all of one type."""
    rng = np.random.default_rng(14)
    x = rng.standard_normal((1, 8, 9, 16)).astype(dtype)
    shapes = {"k": (8, 8, 3, 3), "w": (16, 24), "v": (24, 24), "lw": (1, 96, 24), "lr": (1, 96, 24), "big": (24, 3000)}
    constants = {n: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:] or s))).astype(dtype) for n, s in shapes.items()}
    constants |= {"row": np.array([72, 1, 24]), "flat": np.array([1, 72, 24])}
    nodes = [helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["cr"]),
             helper.make_node("MatMul", ["cr", "w"], ["m"]), helper.make_node("Reshape", ["m", "row"], ["s"]),
             helper.make_node("LSTM", ["s", "lw", "lr"], ["l", "h"], hidden_size=24), helper.make_node("Reshape", ["l", "flat"], ["f"]),
             helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["f", "t"], ["q"]),
             helper.make_node("Softmax", ["q"], ["p"]), helper.make_node("MatMul", ["p", "f"], ["a"]),
             helper.make_node("Add", ["a", "f"], ["r"]), helper.make_node("MatMul", ["r", "big"], ["y"])]
    return model(nodes, {"x": x}, constants, ["y", "h"], helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), {"x": x}


def test_products_of_float16_keep_their_significand() -> None:
    m, feeds = layers_of(np.float16)
    got, plan = narrow(m, feeds)
    assert "bfloat16" not in plan
    for name, value in tensorbox.Session(m, compile=False).run(feeds).items():
        np.testing.assert_array_equal(got[name], value)
    # The same model in float32 is rounded, and `any` takes float16 for float32.
    wide, wide_feeds = layers_of(np.float32)
    assert "bfloat16" in narrow(wide, wide_feeds)[1]
    assert "bfloat16" in tensorbox.Session(m, compile=False, precision="any").dump("plan")


def test_what_is_float32_beside_float16_is_rounded() -> None:
    rng = np.random.default_rng(15)
    x = rng.standard_normal((40, 64)).astype(np.float16)
    w, v, u = ((rng.standard_normal((64, 64)) / 8).astype(np.float32) for _ in range(3))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Cast", ["a"], ["b"], to=TensorProto.FLOAT),
             helper.make_node("MatMul", ["b", "v"], ["c"]), helper.make_node("MatMul", ["c", "u"], ["y"])]
    w = w.astype(np.float16)
    got, plan = narrow(model(nodes, {"x": x}, {"w": w, "v": v, "u": u}, ["y"]), {"x": x})
    assert "bfloat16" in plan
    first = x.astype(np.float64) @ w.astype(np.float64)
    exact = first @ v @ u
    assert 1e-4 < far(got["y"], exact) < 8e-3


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("form", ["MatMul", "Gemm", "Conv", "Transpose"])
def test_weights_beyond_float16_stay_float32(form: str, rows: int) -> None:
    """One of them would be infinite there, and so would each sum that it is a term of."""
    rng = np.random.default_rng(16)
    x, w = rng.standard_normal((rows, 80)).astype(np.float32), rng.standard_normal((80, 64)).astype(np.float32)
    w[3, 7] = 70000
    nodes = {"MatMul": [helper.make_node("MatMul", ["r", "w"], ["y"])], "Gemm": [helper.make_node("Gemm", ["r", "w"], ["y"])],
             "Conv": [helper.make_node("Reshape", ["r", "shape"], ["c"]), helper.make_node("Conv", ["c", "w"], ["y"])],
             "Transpose": [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["r", "t"], ["y"]),
                           helper.make_node("Gather", ["w", "row"], ["z"])]}[form]
    nodes = [helper.make_node("MatMul", ["x", "v"], ["p"]), helper.make_node("Relu", ["p"], ["r"]), *nodes]
    held = {"Conv": w.T[:, :, None, None], "Transpose": w.T}.get(form, w)
    constants = {"v": np.eye(80, dtype=np.float32), "w": np.ascontiguousarray(held), "shape": np.array([rows, 80, 1, 1]), "row": np.array([7])}
    m = model(nodes, {"x": x}, constants, ["y", "z"] if form == "Transpose" else ["y"])
    want = (np.maximum(x, 0).astype(np.float64) @ w).reshape(rows, 64, *[1] * (held.ndim - 2))
    for precision in ("f16", "any"):
        got = tensorbox.Session(m, compile=False, precision=precision).run({"x": x})["y"]
        assert np.isfinite(got).all() and far(got, want) < 1e-2, precision


def test_an_unknown_precision_is_refused() -> None:
    x = np.zeros((1, 1), np.float32)
    m = model([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, {}, ["y"])
    with pytest.raises(tensorbox.ModelError, match="unknown precision 'half': expected strict, tf32, bf16, f16 or any"):
        tensorbox.Session(m, compile=False, precision="half")


def test_a_precision_that_the_cpu_has_not_is_said() -> None:
    x = np.ones((3, 8), np.float32)
    m = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, {"w": np.full((8, 4), 1 + 2**-12, np.float32)}, ["y"])
    for precision in ("bf16", "f16"):
        notes: list[str] = []
        got = tensorbox.Session(m, compile=False, precision=precision, log=notes.append).run({"x": x})["y"]
        if any("and nothing else" in n for n in notes):
            assert (got == 8 * (1 + 2**-12)).all()
        else:
            assert (got == 8).all()


@pytest.mark.parametrize("precision", ["bf16", "f16", "any"])
@pytest.mark.parametrize("form", ["MatMul", "Gemm", "turned"])
def test_weights_of_a_single_row_are_narrow_where_float32_is_faster(precision: str, form: str, tmp_path: Path) -> None:
    """As for an instruction set without narrow products, which a package is asked for: these weights alone are rounded."""
    rng = np.random.default_rng(5)
    w, b = rng.standard_normal((520, 264)).astype(np.float32), rng.standard_normal(264).astype(np.float32)
    nodes = {"MatMul": [helper.make_node("MatMul", ["x", "w"], ["y"])],
             "Gemm": [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
             "turned": [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]}[form]
    kept = w if form == "MatMul" else w.T.copy()
    narrower = np.float16 if precision == "f16" else BF16
    for rows, is_narrow in ((1, True), (2, False), ("n", True)):
        x = rng.standard_normal((3 if rows == "n" else rows, 520)).astype(np.float32)
        m = model(nodes, {"x": x}, {"w": kept, "b": b}, ["y"])
        if rows == "n":
            m.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        session = tensorbox.Session(m, precision=precision)
        session.save(tmp_path / f"{rows}.tbx", isas=["sse"])
        loaded = tensorbox.Session(tmp_path / f"{rows}.tbx", isa="sse")
        weights = w.astype(narrower) if is_narrow else w
        for count in (1, 3, 33) if rows == "n" else (rows,):
            x = rng.standard_normal((count, 520)).astype(np.float32)
            got = loaded.run({"x": x})["y"]
            # "any" lets tiles (AMX) round what they multiply to bfloat16.
            rounds = precision == "any" and any("avx512_core_amx" in d for step in loaded.explain() for d in step["decisions"])
            left = x.astype(BF16) if rounds else x
            want = left.astype(np.float64) @ weights.astype(np.float64) + (b if form == "Gemm" else 0)
            np.testing.assert_allclose(got, want, 2e-5, 1e-4)
