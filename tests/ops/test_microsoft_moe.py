"""MoE and QMoE against numpy, and against ONNX Runtime where it computes the same form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peers import compare, expected, model_of, tensorbox
from test_microsoft_matmul_nbits import pack

Arrays = dict[str, np.ndarray | None]
SWIGLU: dict[str, Any] = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 2.0}


def silu(x: np.ndarray, alpha: float = 1) -> np.ndarray:
    return x / (1 + np.exp(-alpha * x))


def gated(gate: np.ndarray, value: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    limit = a.get("swiglu_limit", np.inf)
    gate, value = np.minimum(gate, limit), np.clip(value, -limit, limit)
    return silu(gate, a.get("activation_alpha", 1)) * (value + a.get("activation_beta", 0))


def activated(h: np.ndarray, third: np.ndarray | None, a: dict[str, Any]) -> np.ndarray:
    kind, fusion = a.get("activation_type", "relu"), a.get("swiglu_fusion", 0)
    if kind == "swiglu":
        if fusion == 0:
            return gated(h, third, a)
        return gated(h[..., ::2], h[..., 1::2], a) if fusion == 1 else gated(*np.split(h, 2, -1), a)
    h = {"relu": lambda: np.maximum(h, 0), "silu": lambda: silu(h), "identity": lambda: h,
         "gelu": lambda: 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))}[kind]()
    return h if third is None else h * third


def reference(x: np.ndarray, router: np.ndarray, w: list[np.ndarray | None], b: list[np.ndarray | None], a: dict[str, Any],
              weights: np.ndarray | None = None, of_chosen: bool = False) -> np.ndarray:
    """Every token through its experts, one after the other, in f64. `of_chosen`: the softmax is over those."""
    def layer(n: int, e: int, h: np.ndarray) -> np.ndarray:
        return h @ w[n][e].T.astype(np.float64) + (0 if b[n] is None else b[n][e].astype(np.float64))

    rows, router = x.reshape(-1, x.shape[-1]).astype(np.float64), router.astype(np.float64)
    p = np.exp(router - router.max(-1, keepdims=True, initial=-np.inf))
    p /= p.sum(-1, keepdims=True)
    y = np.zeros_like(rows)
    for t, row in enumerate(rows):
        # Of equal ones the last.
        chosen = sorted(range(router.shape[1]), key=lambda e: (router[t, e], e), reverse=True)[:a.get("k", 1)]
        shares = (p if weights is None else weights.astype(np.float64))[t, chosen]
        if a.get("normalize_routing_weights") or (of_chosen and weights is None):
            shares = shares / (shares.sum() or 1)
        shares = np.where(shares > 1e-8, shares, 0) if weights is not None else shares
        for e, share in zip(chosen, shares, strict=True):
            y[t] += share * layer(1, e, activated(layer(0, e, row), layer(2, e, row) if w[2] is not None else None, a))
    return y.reshape(x.shape).astype(x.dtype)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def mixture(rng: np.random.Generator, tokens: tuple[int, ...], hidden: int, inter: int, experts: int, a: dict[str, Any],
            dtype: type = np.float32, bias: bool = True, third: bool = False) -> Arrays:
    wide = inter * 2 if a.get("activation_type") == "swiglu" and a.get("swiglu_fusion") else inter
    inputs: Arrays = {"x": floats(rng, *tokens, hidden), "router": floats(rng, int(np.prod(tokens)), experts),
                      "w1": floats(rng, experts, wide, hidden) / hidden**0.5, "b1": floats(rng, experts, wide),
                      "w2": floats(rng, experts, hidden, inter) / inter**0.5, "b2": floats(rng, experts, hidden),
                      "w3": floats(rng, experts, inter, hidden) / hidden**0.5, "b3": floats(rng, experts, inter)}
    for name in () if third else ("w3", "b3"):
        inputs[name] = None
    for name in () if bias else ("b1", "b2", "b3"):
        inputs[name] = None
    return {name: None if value is None else value.astype(dtype) for name, value in inputs.items()}


def check(op: str, inputs: Arrays, a: dict[str, Any], want: np.ndarray, tolerance: float, ort: bool = False,
          constants: bool = True) -> None:
    fed = {"x", "router", "router_weights"}
    model = model_of(op, inputs, ["Y"], 17, [n for n, v in inputs.items() if v is not None and n not in fed and constants],
                     domain="com.microsoft", **a)
    scale = float(np.abs(want.astype(np.float32)).max(initial=1))
    compare(model, inputs, rtol=tolerance, atol=tolerance * scale, want=[want])
    if ort:
        fed &= {n for n, v in inputs.items() if v is not None}
        theirs = expected(model, {n: inputs[n] for n in fed}, "ort")[0].astype(np.float32)
        np.testing.assert_allclose(want.astype(np.float32), theirs, 0, tolerance * scale)


FORMS = [{"activation_type": kind, "k": k, "normalize_routing_weights": n} for kind in ("relu", "gelu", "silu", "identity")
         for k, n in ((1, 0), (2, 1), (4, 0))]
FORMS += [{**SWIGLU, "swiglu_fusion": fusion, "k": 2, "normalize_routing_weights": n} for fusion in (1, 2) for n in (0, 1)]
FORMS += [{"activation_type": "swiglu", "swiglu_fusion": 1, "k": 3}]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_moe(form: dict[str, Any], bias: bool) -> None:
    rng = np.random.default_rng(1)
    for tokens, hidden, inter, experts in [((1,), 32, 48, 4), ((2, 3), 37, 21, 5), ((40,), 64, 40, 4), ((300,), 16, 24, 8)]:
        inputs = mixture(rng, tokens, hidden, inter, experts, form, bias=bias)
        want = reference(inputs["x"], inputs["router"], [inputs["w1"], inputs["w2"], None], [inputs["b1"], inputs["b2"], None], form)
        for constants in (True, False):
            check("MoE", inputs, form, want, 2e-5, constants=constants)


@pytest.mark.parametrize("form", [form for form in FORMS if form.get("swiglu_fusion") != 2], ids=str)
def test_moe_against_onnxruntime(form: dict[str, Any]) -> None:
    inputs = mixture(np.random.default_rng(2), (2, 9), 32, 48, 6, form)
    want = reference(inputs["x"], inputs["router"], [inputs["w1"], inputs["w2"], None], [inputs["b1"], inputs["b2"], None], form)
    check("MoE", inputs, form, want, 1e-5, ort=True)


@pytest.mark.parametrize("form", [{"activation_type": "silu"}, {"activation_type": "relu"}, {**SWIGLU}], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_moe_with_a_third_layer(form: dict[str, Any], bias: bool) -> None:
    form = {**form, "k": 2}
    inputs = mixture(np.random.default_rng(3), (7,), 32, 48, 4, form, bias=bias, third=True)
    want = reference(inputs["x"], inputs["router"], [inputs[n] for n in ("w1", "w2", "w3")], [inputs[n] for n in ("b1", "b2", "b3")], form)
    check("MoE", inputs, form, want, 2e-5)


@pytest.mark.parametrize("kind,tolerance", [("float16", 2e-3), ("bfloat16", 1.6e-2)])
@pytest.mark.parametrize("tokens", [1, 3, 60])
def test_moe_of_narrow_floats(kind: str, tolerance: float, tokens: int) -> None:
    dtype = np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    form = {**SWIGLU, "swiglu_fusion": 1, "k": 2, "normalize_routing_weights": 1}
    inputs = mixture(np.random.default_rng(4), (tokens,), 48, 40, 3, form, dtype)
    want = reference(inputs["x"], inputs["router"], [inputs["w1"], inputs["w2"], None], [inputs["b1"], inputs["b2"], None], form)
    for constants in (True, False):
        check("MoE", inputs, form, want, tolerance, constants=constants)


def test_moe_ties_and_extremes() -> None:
    form = {"k": 2, "normalize_routing_weights": 1}
    inputs = mixture(np.random.default_rng(5), (4,), 16, 16, 5, form)
    inputs["router"] = np.array([[0] * 5, [1, 1, 0, 1, 0], [-300, 300, 0, 0, 0], [90, 90, 90, 90, -90]], np.float32)
    want = reference(inputs["x"], inputs["router"], [inputs["w1"], inputs["w2"], None], [inputs["b1"], inputs["b2"], None], form)
    check("MoE", inputs, form, want, 1e-5, ort=True)


def test_moe_empty() -> None:
    for tokens in ((0,), (2, 0)):
        inputs = mixture(np.random.default_rng(6), tokens, 16, 16, 5, {})
        check("MoE", inputs, {"k": 2}, np.zeros((*tokens, 16), np.float32), 1e-5)


# --- QMoE


def quantized(rng: np.random.Generator, experts: int, n: int, k: int, bits: int, block: int, zeros: bool,
              dtype: type) -> tuple[Arrays, np.ndarray]:
    """Weights, scales and zero points of a layer, and its matrices."""
    blocks = k // block if block else 1
    q = rng.integers(0, 1 << bits, (experts, n, k))
    scales = rng.uniform(0.2, 1, (experts, n, blocks)) / (1 << bits) / k**0.5 * 4
    scales = scales.astype(dtype)
    points = rng.integers(0, 1 << bits, (experts, n, blocks)) if zeros else np.full((experts, n, blocks), 1 << (bits - 1))
    w = ((q.reshape(experts, n, blocks, -1) - points[..., None]) * scales[..., None].astype(np.float64)).reshape(experts, n, k)
    given = None
    if zeros:
        given = pack(points, bits) if block else pack(points[..., 0], bits)
    return {"w": pack(q, bits), "s": scales if block else scales[..., 0], "z": given}, w


def quantized_mixture(rng: np.random.Generator, tokens: int, hidden: int, inter: int, experts: int, bits: tuple[int, int, int],
                      block: int, zeros: bool, a: dict[str, Any], dtype: type = np.float32, third: bool = False,
                      weights: bool = False) -> tuple[Arrays, np.ndarray]:
    wide = inter * 2 if a.get("activation_type") == "swiglu" and a.get("swiglu_fusion") else inter
    sizes = [(wide, hidden), (hidden, inter), (inter, hidden)]
    layers = [quantized(rng, experts, n, k, b, block, zeros, dtype) for (n, k), b in zip(sizes, bits, strict=True)]
    inputs: Arrays = {"x": floats(rng, tokens, hidden).astype(dtype), "router": floats(rng, tokens, experts).astype(dtype)}
    for i, (layer, _) in enumerate(layers):
        used = third or i < 2
        inputs |= {f"w{i}": layer["w"] if used else None, f"s{i}": layer["s"] if used else None,
                   f"b{i}": floats(rng, experts, sizes[i][0]).astype(dtype) if used else None}
    inputs |= {f"z{i}": layer["z"] if third or i < 2 else None for i, (layer, _) in enumerate(layers)}
    inputs["router_weights"] = rng.uniform(0.1, 1, (tokens, experts)).astype(dtype) if weights else None
    if weights:
        inputs["router_weights"][0] = 0  # counts as nothing
    matrices = [w if third or i < 2 else None for i, (_, w) in enumerate(layers)]
    want = reference(inputs["x"], inputs["router"], matrices, [inputs[f"b{i}"] for i in range(3)], a, inputs["router_weights"], True)
    return inputs, want


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16, 32, 64])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("kind", ["silu", "swiglu"])
def test_qmoe(bits: int, block: int, zeros: bool, kind: str) -> None:
    rng = np.random.default_rng(bits + block)
    for tokens, weights, normalize in ((1, False, 1), (6, True, 1), (5, True, 0), (50, False, 0)):
        form: dict[str, Any] = {"k": 2, "normalize_routing_weights": normalize, "expert_weight_bits": bits, "activation_type": kind}
        form |= {**SWIGLU, "swiglu_fusion": 1} if kind == "swiglu" else {}
        form |= {"block_size": block} if block else {}
        inputs, want = quantized_mixture(rng, tokens, 64, 128, 4, (bits,) * 3, block, zeros, form, weights=weights)
        # Theirs rounds activations to bytes before products with 8-bit blocks and with 2-bit ones of some sizes.
        check("QMoE", inputs, form, want, 1e-5, ort=not block or bits == 4)
        check("QMoE", inputs, form, want, 1e-5, constants=False)


@pytest.mark.parametrize("kind,tolerance", [("float16", 2e-3), ("bfloat16", 1.6e-2)])
@pytest.mark.parametrize("block", [0, 32])
def test_qmoe_of_narrow_floats(kind: str, tolerance: float, block: int) -> None:
    dtype = np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    form = {"k": 2, "normalize_routing_weights": 1, "activation_type": "silu", **({"block_size": block} if block else {})}
    for tokens in (1, 20):
        inputs, want = quantized_mixture(np.random.default_rng(7), tokens, 64, 96, 4, (4, 4, 4), block, True, form, dtype)
        check("QMoE", inputs, form, want, tolerance, ort=kind == "float16")


@pytest.mark.parametrize("kind", ["silu", "swiglu"])
def test_qmoe_with_a_third_layer_of_other_bits(kind: str) -> None:
    form = {"activation_type": kind, "k": 2, "fc1_expert_weight_bits": 8, "fc3_expert_weight_bits": 2, "block_size": 16}
    inputs, want = quantized_mixture(np.random.default_rng(8), 5, 32, 48, 4, (8, 4, 2), 16, True, form, third=True)
    check("QMoE", inputs, form, want, 1e-5)


@pytest.mark.parametrize("hidden,inter", [(20, 36), (44, 8)])
def test_qmoe_of_rows_that_are_no_whole_blocks(hidden: int, inter: int) -> None:
    form = {"activation_type": "relu", "k": 1}
    for tokens in (2, 30):
        inputs, want = quantized_mixture(np.random.default_rng(9), tokens, hidden, inter, 3, (4, 4, 4), 0, True, form)
        check("QMoE", inputs, form, want, 1e-5)


def test_qmoe_rounded_activations() -> None:
    """accuracy_level 4 may round activations to bytes: near what is exact."""
    form = {"activation_type": "silu", "k": 2, "block_size": 32, "accuracy_level": 4}
    inputs, want = quantized_mixture(np.random.default_rng(10), 4, 64, 128, 4, (4, 4, 4), 32, False, form)
    check("QMoE", inputs, form, want, 3e-2)


@pytest.mark.parametrize("tokens", [1, 20])
@pytest.mark.parametrize("isa", ["sse", "avx2", ""])
def test_compiled(tokens: int, isa: str) -> None:
    rng = np.random.default_rng(11)
    form = {**SWIGLU, "swiglu_fusion": 1, "k": 2, "normalize_routing_weights": 1}
    inputs = mixture(rng, (tokens,), 64, 96, 4, form)
    want = reference(inputs["x"], inputs["router"], [inputs["w1"], inputs["w2"], None], [inputs["b1"], inputs["b2"], None], form)
    packed, of_packed = quantized_mixture(rng, tokens, 64, 96, 4, (4, 4, 4), 32, True, {**form, "block_size": 32})
    for op, given, wanted, more in (("MoE", inputs, want, {}), ("QMoE", packed, of_packed, {"block_size": 32})):
        fed = {n: given[n] for n in ("x", "router")}
        model = model_of(op, given, ["Y"], 17, [n for n, v in given.items() if v is not None and n not in fed], domain="com.microsoft",
                         **form, **more)
        got = tensorbox.Session(model, **({"isa": isa} if isa else {})).run(fed)["Y"]
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)


# --- what is refused


@pytest.mark.parametrize("change,form,message", [
    ({}, {"k": 0}, "k is 0"), ({}, {"k": 5}, "k is 5 for 4 experts"), ({}, {"activation_type": "tanh"}, "activation_type is 'tanh'"),
    ({}, {"activation_type": "swiglu"}, "needs fc3_experts_weights"), ({}, {"swiglu_fusion": 3}, "swiglu_fusion is 3"),
    ({}, {"use_sparse_mixer": 1}, "sparse mixer needs k = 2"),
    ({}, {"activation_type": "swiglu", "swiglu_fusion": 1}, "weights and the layer's result differ"),
    ({"router": (3, 5)}, {}, "fc1_experts_weights and the experts of router_probs differ"), ({"router": (2, 4)}, {}, "tokens of router_probs"),
    ({"router": (3,)}, {}, "router_probs is float32 of rank 1"), ({"x": (3, 7)}, {}, "rows of fc1_experts_weights"),
    ({"w2": (4, 8, 11)}, {}, "fc1_experts_weights"), ({"b2": (4, 7)}, {}, "fc2_experts_bias"), ({"b3": (4, 12)}, {}, "fc3_experts_bias without")])
def test_moe_refuses(change: dict[str, tuple[int, ...]], form: dict[str, Any], message: str) -> None:
    shapes = {"x": (3, 8), "router": (3, 4), "w1": (4, 12, 8), "b1": (4, 12), "w2": (4, 8, 12), "b2": (4, 8), "w3": None, "b3": None} | change
    inputs = {name: None if shape is None else np.zeros(shape, np.float32) for name, shape in shapes.items()}
    model = model_of("MoE", inputs, ["Y"], 17, domain="com.microsoft", **form)
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(model, compile=False)


@pytest.mark.parametrize("change,form,message", [
    ({}, {"expert_weight_bits": 3}, "is 3, expected 2, 4 or 8"), ({}, {"block_size": 24}, "block_size is 24"),
    ({}, {"block_size": 32}, "block_size"), ({"s1": None}, {}, "fc1_scales are missing"), ({"s2": (4, 8, 1)}, {}, "fc2_scales"),
    ({}, {"quant_type": "fp8"}, "quant_type 'fp8'"), ({"z1": (4, 12)}, {}, "zero_points")])
def test_qmoe_refuses(change: dict[str, Any], form: dict[str, Any], message: str) -> None:
    shapes = {"x": (3, 8), "router": (3, 4), "w1": (4, 16, 4), "s1": (4, 16), "b1": None, "w2": (4, 8, 8), "s2": (4, 8), "b2": None,
              "w3": None, "s3": None, "b3": None, "z1": None} | change
    kinds = {"w1": np.uint8, "w2": np.uint8, "z1": np.uint8}
    inputs = {name: None if shape is None else np.zeros(shape, kinds.get(name, np.float32)) for name, shape in shapes.items()}
    model = model_of("QMoE", inputs, ["Y"], 17, domain="com.microsoft", **form)
    with pytest.raises(tensorbox.Error, match=message):
        tensorbox.Session(model, compile=False)
