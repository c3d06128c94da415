"""Models that read one token of a transformer's layer: nothing else is computed of it, and results are those of numpy in
double; on the CPU and on the fake device."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import tensorbox

BATCH, HEADS, WIDTH = 2, 2, 4
SIZE, HIDDEN = HEADS * WIDTH, 24
RNG = np.random.default_rng(5)
WEIGHTS = {n: RNG.standard_normal(s).astype("f") / 2 for n, s in
           {"wq": (SIZE, SIZE), "wk": (SIZE, SIZE), "wv": (SIZE, SIZE), "wo": (SIZE, SIZE), "bo": (SIZE,), "scale": (SIZE,),
            "shift": (SIZE,), "w1": (SIZE, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, SIZE), "head": (3, SIZE), "bh": (3,)}.items()}


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def selection(kind: str, index: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    if kind == "slice":
        end = index + 1 if index != -1 else np.iinfo("q").max
        return ([helper.make_node("Slice", ["x", "from", "to", "along"], ["one"]), helper.make_node("Squeeze", ["one", "along"], ["token"])],
                {"from": np.array([index]), "to": np.array([end]), "along": np.array([1])})
    if kind == "list":
        return ([helper.make_node("Gather", ["x", "index"], ["one"], axis=-2), helper.make_node("Squeeze", ["one", "along"], ["token"])],
                {"index": np.array([index]), "along": np.array([1])})
    return [helper.make_node("Gather", ["x", "index"], ["token"], axis=1)], {"index": np.array(index)}


def model(tokens: int | str, kind: str, index: int, whole: bool) -> onnx.ModelProto:
    """`whole`: the tokens are an output, too."""
    nodes = []
    for n in "qkv":
        nodes += [helper.make_node("MatMul", ["a", f"w{n}"], [f"p{n}"]), helper.make_node("Reshape", [f"p{n}", "split"], [f"s{n}"]),
                  helper.make_node("Transpose", [f"s{n}"], [n], perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3])]
    nodes += [helper.make_node("MatMul", ["q", "k"], ["scores"]), helper.make_node("Add", ["scores", "mask"], ["masked"]),
              helper.make_node("Softmax", ["masked"], ["shares"], axis=-1), helper.make_node("MatMul", ["shares", "v"], ["y"]),
              helper.make_node("Transpose", ["y"], ["t"], perm=[0, 2, 1, 3]), helper.make_node("Reshape", ["t", "joined"], ["j"]),
              helper.make_node("MatMul", ["j", "wo"], ["o"]), helper.make_node("Add", ["o", "bo"], ["ob"]),
              helper.make_node("Add", ["a", "ob"], ["r"]), helper.make_node("LayerNormalization", ["r", "scale", "shift"], ["n"]),
              helper.make_node("MatMul", ["n", "w1"], ["h"]), helper.make_node("Add", ["h", "b1"], ["hb"]),
              helper.make_node("Gelu", ["hb"], ["g"]), helper.make_node("MatMul", ["g", "w2"], ["m"]),
              helper.make_node("Add", ["m", "r"], ["x"])]
    chosen, constants = selection(kind, index)
    nodes += [*chosen, helper.make_node("Gemm", ["token", "head", "bh"], ["z"], transB=1)]
    constants |= WEIGHTS | {"split": np.array([0, 0, HEADS, WIDTH]), "joined": np.array([0, 0, SIZE])}
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [BATCH, 3])]
    if whole:
        outputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, tokens, SIZE]))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [BATCH, tokens, SIZE]),
                                           helper.make_tensor_value_info("mask", TensorProto.FLOAT, [BATCH, 1, tokens, tokens])],
                              outputs, [numpy_helper.from_array(w, n) for n, w in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def expected(a: np.ndarray, mask: np.ndarray) -> np.ndarray:
    erf = np.vectorize(math.erf)
    w = {n: x.astype("d") for n, x in WEIGHTS.items()}
    q, k, v = ((a.astype("d") @ w[f"w{n}"]).reshape(*a.shape[:2], HEADS, WIDTH).swapaxes(1, 2) for n in "qkv")
    s = q @ k.swapaxes(2, 3) + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    y = (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(a.shape)
    r = y @ w["wo"] + w["bo"] + a
    n = (r - r.mean(-1, keepdims=True)) / np.sqrt(r.var(-1, keepdims=True) + 1e-5) * w["scale"] + w["shift"]
    h = n @ w["w1"] + w["b1"]
    return (h * (1 + erf(h / np.sqrt(2))) / 2) @ w["w2"] + r


def work(session: tensorbox.Session) -> float:
    return sum(k["flops"] for k in session.explain())


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("kind", "index"), [("scalar", 0), ("scalar", -1), ("list", 3), ("slice", 0), ("slice", -1)])
@pytest.mark.parametrize("tokens", [7, "n"])
@pytest.mark.parametrize("device", ["", "cuda"], ids=["cpu", "cuda"])
def test_one_token_of_a_layer(device: str, tokens: int | str, kind: str, index: int, whole: bool) -> None:
    proto = model(tokens, kind, index, whole)
    session = tensorbox.Session(proto, device=device)
    options: dict[str, Any] = {"device": device, "disable_passes": ["compute_selected"]}
    if tokens != "n":
        less = work(session) < 0.7 * work(tensorbox.Session(proto, **options))
        assert less == (not whole)
    for length in [7] if tokens != "n" else [7, 4, 12]:
        a = RNG.standard_normal((BATCH, length, SIZE)).astype("f")
        mask = np.where(RNG.random((BATCH, 1, length, length)) < 0.3, -1e4, 0).astype("f")
        mask[..., 0] = 0
        got, want = session.run({"a": a, "mask": mask}), expected(a, mask)
        z = want[:, index] @ WEIGHTS["head"].astype("d").T + WEIGHTS["bh"]
        np.testing.assert_allclose(got["z"], z, rtol=1e-4, atol=1e-4)
        if whole:
            np.testing.assert_allclose(got["x"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["scalar", "list"])
@pytest.mark.parametrize("tokens", [3, "n"])
def test_a_token_that_is_not_there_is_an_error(tokens: int | str, kind: str) -> None:
    a, mask = np.zeros((BATCH, 3, SIZE), "f"), np.zeros((BATCH, 1, 3, 3), "f")
    with pytest.raises(tensorbox.Error, match="Gather"):
        tensorbox.Session(model(tokens, kind, 3, False)).run({"a": a, "mask": mask})
