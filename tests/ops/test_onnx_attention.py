"""ONNX Attention by the kernels of attention, beside numpy in double: heads in a dimension and side by side, shared keys,
masks of all ranks, causal masks with and without a past, windows, rows that see nothing, and what is left to ONNX's body."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import tensorbox


@dataclass(frozen=True)
class Case:
    batch: int = 2
    heads: int = 4
    shared: int = 4  # heads of keys
    queries: int = 5
    keys: int = 5  # new ones
    past: int = 0
    width: int = 8
    value_width: int = 8
    side_by_side: bool = False
    mask: tuple[int, ...] | None = None  # its dimensions, counted from the last, that are not 1
    bool_mask: bool = False
    causal: bool = False
    scale: float | None = None
    softcap: float = 0
    window: int = -1
    opset: int = 23
    dtype: str = "float32"


SMALL = {
    "plain": Case(),
    "side by side": Case(side_by_side=True, shared=2, value_width=6),
    "shared keys": Case(heads=6, shared=2, queries=3, keys=7),
    "one key": Case(queries=1, keys=1),
    "no query": Case(queries=0),
    "no key": Case(keys=0),
    "no batch": Case(batch=0),
    "mask of rank 2": Case(mask=(3, 2), queries=3, keys=9),
    "mask of rank 3": Case(mask=(3, 2, 1)),
    "mask of rank 4": Case(mask=(3, 0), bool_mask=True),
    "mask of all": Case(mask=(3, 2, 1, 0), bool_mask=True, shared=1),
    "causal": Case(causal=True, queries=6, keys=6),
    "causal, fewer queries": Case(causal=True, queries=3, keys=7),
    "causal, more queries": Case(causal=True, queries=7, keys=3),
    "causal with a past": Case(causal=True, past=4, queries=3, keys=3, shared=2),
    "causal with a past, fewer queries": Case(causal=True, past=4, queries=2, keys=5),
    "a past": Case(past=6, queries=1, keys=1, side_by_side=True),
    "causal and a mask": Case(causal=True, mask=(3, 2), bool_mask=True, past=2),
    "softcap": Case(softcap=0.7, scale=0.9, mask=(3, 2)),
    "window": Case(causal=True, window=2, queries=9, keys=9, opset=25),
    "window of one key": Case(causal=True, window=0, queries=4, keys=4, past=3, opset=25),
    "window behind the last key": Case(causal=True, window=2, queries=4, keys=2, past=8, opset=25),
    "window without a causal mask": Case(window=1, queries=6, keys=6, opset=25),
    "float16": Case(dtype="float16", mask=(3, 2), causal=True, heads=6, shared=3),
    "double": Case(dtype="float64", causal=True),
}
LARGE = {  # those of the kernel that never stores scores
    "text": Case(batch=1, heads=12, shared=12, queries=700, keys=700, width=64, value_width=64, mask=(3,), bool_mask=True),
    "causal": Case(batch=1, heads=8, shared=2, queries=600, keys=600, width=64, value_width=64, causal=True),
    "causal, fewer queries": Case(batch=1, heads=2, shared=1, queries=513, keys=1025, width=33, value_width=65, causal=True),
    "a step": Case(batch=2, heads=8, shared=2, queries=1, keys=1, past=2047, width=64, value_width=64, causal=True),
}


def node_of(case: Case) -> onnx.NodeProto:
    names = ["q", "k", "v", "mask" if case.mask is not None else "", "past_key" if case.past else "",
             "past_value" if case.past else ""]
    while not names[-1]:
        names.pop()
    attributes: dict[str, float | int] = {"is_causal": int(case.causal)}
    if case.side_by_side:
        attributes |= {"q_num_heads": case.heads, "kv_num_heads": case.shared}
    if case.scale is not None:
        attributes["scale"] = case.scale
    if case.softcap:
        attributes["softcap"] = case.softcap
    if case.window >= 0:
        attributes["left_window_size"] = case.window
    return helper.make_node("Attention", names, ["y", "present_key", "present_value"], **attributes)


def model_of(case: Case, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    def info(name: str, dtype: np.dtype, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)

    outputs = [info(n, np.dtype(case.dtype), None) for n in ("y", "present_key", "present_value")]
    graph = helper.make_graph([node_of(case)], "attention", [info(n, x.dtype, x.shape) for n, x in feeds.items()], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def feeds_of(case: Case, rng: np.random.Generator) -> dict[str, np.ndarray]:
    def heads(count: int, rows: int, width: int) -> np.ndarray:
        shape = (case.batch, rows, count * width) if case.side_by_side else (case.batch, count, rows, width)
        return rng.standard_normal(shape).astype(case.dtype)

    feeds = {"q": heads(case.heads, case.queries, case.width), "k": heads(case.shared, case.keys, case.width),
             "v": heads(case.shared, case.keys, case.value_width)}
    if case.mask is not None:
        sizes = (case.batch, case.heads, case.queries, case.past + case.keys)
        rank = max(2, 4 - min(case.mask))
        shape = tuple(sizes[d] if d in case.mask else 1 for d in range(4 - rank, 4))
        hidden = rng.random(shape) < 0.4
        numbers = np.where(hidden, -np.inf, rng.standard_normal(shape)).astype(case.dtype)
        feeds["mask"] = ~hidden if case.bool_mask else numbers
    if case.past:
        feeds["past_key"] = rng.standard_normal((case.batch, case.shared, case.past, case.width)).astype(case.dtype)
        feeds["past_value"] = rng.standard_normal((case.batch, case.shared, case.past, case.value_width)).astype(case.dtype)
    return feeds


def apart(x: np.ndarray, heads: int) -> np.ndarray:
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def expected(case: Case, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    q, k, v = (apart(feeds[n].astype(np.float64), h) for n, h in (("q", case.heads), ("k", case.shared), ("v", case.shared)))
    if case.past:
        k, v = (np.concatenate([feeds[n].astype(np.float64), x], 2) for n, x in (("past_key", k), ("past_value", v)))
    scale = case.width ** -0.5 if case.scale is None else case.scale
    scores = scale * q @ k.repeat(case.heads // case.shared, 1).transpose(0, 1, 3, 2)
    if case.softcap:
        scores = case.softcap * np.tanh(scores / case.softcap)
    bias = np.zeros(scores.shape)
    if "mask" in feeds:
        mask = feeds["mask"]
        bias = bias + (np.where(mask, 0, -np.inf) if case.bool_mask else mask.astype(np.float64))
    at, key = case.past + np.arange(case.queries)[:, None], np.arange(k.shape[2])[None]
    if case.causal:
        bias = bias + np.where(key > at, -np.inf, 0)
    if case.window >= 0:
        bias = bias + np.where(key < at - case.window, -np.inf, 0)
    hidden = (bias == -np.inf).all(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        scores = scores + bias
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = np.where(hidden, 0, weights / weights.sum(-1, keepdims=True))
    y = weights @ v.repeat(case.heads // case.shared, 1)
    return [y.transpose(0, 2, 1, 3).reshape(case.batch, case.queries, -1) if case.side_by_side else y, k, v]


def check(case: Case, **options: object) -> tensorbox.Session:
    feeds = feeds_of(case, np.random.default_rng(7))
    session = tensorbox.Session(model_of(case, feeds), **options)
    got = session.run(feeds)
    tolerance = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-7}[case.dtype]  # the body has its scale in float32
    for name, want in zip(("y", "present_key", "present_value"), expected(case, feeds)):
        assert got[name].dtype == np.dtype(case.dtype) and got[name].shape == want.shape
        np.testing.assert_allclose(got[name], want, rtol=tolerance, atol=tolerance, err_msg=name)
    return session


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("compile", [False, True])
def test_forms(name: str, compile: bool) -> None:
    check(SMALL[name], compile=compile)


@pytest.mark.parametrize("name", LARGE)
def test_scores_are_not_stored(name: str) -> None:
    session = check(LARGE[name])
    assert any("Attention" in k["name"] for k in session.explain())


@pytest.mark.parametrize("name", ["plain", "causal with a past", "mask of all", "causal, fewer queries"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_on_the_device(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    session = check(replace(SMALL[name], dtype=dtype), device="cuda")
    assert any("Attention" in k["name"] for k in session.explain()), "one kernel"


@pytest.mark.parametrize("queries", [3, 700])
def test_what_is_no_number_stays_so(queries: int) -> None:
    case = Case(batch=1, heads=2, shared=2, queries=queries, keys=700, mask=(3, 2))
    feeds = feeds_of(case, np.random.default_rng(8))
    feeds["q"][0, 0, 1, 2] = np.nan
    feeds["mask"][0] = -np.inf
    y = tensorbox.Session(model_of(case, feeds)).run(feeds)["y"]
    want = expected(case, feeds)[0]
    assert np.isnan(want[0, 0, 1]).all() and (want[0, :, 0] == 0).all()
    np.testing.assert_allclose(y, want, rtol=2e-5, atol=2e-5)


def test_scores_that_are_outputs() -> None:
    """These run through ONNX's body."""
    case = Case(causal=True)
    feeds = feeds_of(case, np.random.default_rng(9))
    model = model_of(case, feeds)
    model.graph.node[0].output.append("scores")
    model.graph.output.append(helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, None))
    got = tensorbox.Session(model).run(feeds)
    np.testing.assert_allclose(got["y"], expected(case, feeds)[0], rtol=2e-5, atol=2e-5)
    scores = case.width ** -0.5 * feeds["q"].astype(np.float64) @ feeds["k"].astype(np.float64).transpose(0, 1, 3, 2)
    np.testing.assert_allclose(got["scores"], scores, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("precision", ["strict", "f16", "bf16"])
def test_between_products(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow operands stay what they are, so that a library may take them."""
    monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    rng = np.random.default_rng(10)
    x = rng.standard_normal((1, 48, 64)).astype(np.float32)
    weights = {n: (rng.standard_normal((64, 64)) / 8).astype(np.float32) for n in ("wq", "wk", "wv", "wo")}
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [n]) for n in "qkv"]
    nodes += [helper.make_node("Attention", ["q", "k", "v"], ["a"], q_num_heads=4, kv_num_heads=4),
              helper.make_node("MatMul", ["a", "wo"], ["y"])]
    graph = helper.make_graph(nodes, "layer", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, x.shape)],
                              [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = tensorbox.Session(model, device="cuda", precision=precision)
    y = session.run({"x": x})["y"]
    case = Case(batch=1, queries=48, keys=48, width=16, value_width=16, side_by_side=True)
    feeds = {n: (x.astype(np.float64) @ weights[f"w{n}"]) for n in "qkv"}
    want = expected(case, feeds)[0] @ weights["wo"].astype(np.float64)
    assert np.linalg.norm(y - want) / np.linalg.norm(want) < {"strict": 1e-6, "f16": 3e-3, "bf16": 2e-2}[precision]
    taken = "cuda_attention" if precision == "strict" else "cudnn_attention"
    assert any(taken in k["name"] for k in session.explain())
