"""Attention within windows of an image, as Swin Transformers have it: a bias for each head, and for shifted windows a mask
for each window, which is added where the batch is seen as [images, windows]. On the CPU and on the fake device, against
numpy in double."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import tensorbox

WINDOWS, HEADS, TOKENS, WIDTH = 4, 3, 9, 8
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def model(batch: int | str, mask: list[Any], given: bool, later: list[Any] | None, dtype: int) -> onnx.ModelProto:
    """softmax(seen again(windows of(q k + bias) + mask + later)) v. `given`: bias and masks are inputs, else constants."""
    shape = [batch, HEADS, TOKENS, WIDTH]
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), helper.make_node("Mul", ["q", "scale"], ["scaled"]),
             helper.make_node("MatMul", ["scaled", "t"], ["s"]), helper.make_node("Add", ["s", "bias"], ["biased"]),
             helper.make_node("Reshape", ["biased", "split"], ["windows"]),
             helper.make_node("Add", ["windows", "mask"], ["masked"])]
    added = {"bias": [1, HEADS, TOKENS, TOKENS], "mask": mask}
    last = "masked"
    if later is not None:
        nodes.append(helper.make_node("Add", ["later", "masked"], ["more"]))
        added["later"], last = later, "more"
    nodes += [helper.make_node("Reshape", [last, "joined"], ["seen"]), helper.make_node("Softmax", ["seen"], ["p"], axis=-1),
              helper.make_node("MatMul", ["p", "v"], ["y"])]
    images = batch // WINDOWS if isinstance(batch, int) else -1
    weights = {"scale": np.array(WIDTH**-0.5, kind), "split": np.array([images, WINDOWS, HEADS, TOKENS, TOKENS]),
               "joined": np.array([-1, HEADS, TOKENS, TOKENS])}
    inputs = {n: shape for n in "qkv"}
    if given:
        inputs |= added
    else:
        weights |= {n: values_of(n, sizes, kind) for n, sizes in added.items()}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs.items()],
                              [helper.make_tensor_value_info("y", dtype, shape)],
                              [numpy_helper.from_array(w, n) for n, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def values_of(name: str, sizes: list[int], kind: Any) -> np.ndarray:
    """Masks hide keys by -100, as Swin's do; the key of the query itself is seen."""
    drawn = np.random.default_rng(len(name)).standard_normal(sizes)
    if name == "bias":
        return drawn.astype(kind)
    return np.where((drawn > 0) & ~np.eye(TOKENS, dtype=bool), -100, 0).astype(kind)


def expected(x: dict[str, np.ndarray]) -> np.ndarray:
    q, k, v = (x[n].astype("d") for n in "qkv")
    y = np.empty(q.shape)
    for entry in range(len(q)):
        image, window = divmod(entry, WINDOWS)
        s = q[entry] @ k[entry].swapaxes(1, 2) * WIDTH**-0.5 + x["bias"][0]
        for name in ("mask", "later"):
            if name in x:
                seen = x[name][(None,) * (5 - x[name].ndim)]
                s += seen[image if seen.shape[0] > 1 else 0, window if seen.shape[1] > 1 else 0]
        e = np.exp(s - s.max(-1, keepdims=True))
        y[entry] = e / e.sum(-1, keepdims=True) @ v[entry]
    return y


OF_WINDOWS = [1, WINDOWS, 1, TOKENS, TOKENS]
CASES = {  # batch of the model, mask, bias and masks are inputs, one more mask, images of the runs
    "one image": (WINDOWS, OF_WINDOWS, False, None, [1]),
    "images": (3 * WINDOWS, OF_WINDOWS, False, None, [3]),
    "images of a run": ("n", OF_WINDOWS, False, None, [2, 1, 3]),
    "inputs": ("n", OF_WINDOWS, True, None, [2, 1]),
    "without images": (2 * WINDOWS, OF_WINDOWS[1:], True, None, [2]),
    "for each image": (2 * WINDOWS, [2, 1, 1, TOKENS, TOKENS], True, None, [2]),
    "for all": (2 * WINDOWS, [TOKENS, TOKENS], True, None, [2]),
    "two": (2 * WINDOWS, OF_WINDOWS, False, [2, WINDOWS, HEADS, TOKENS, TOKENS], [2]),
}


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("device", ["", "cuda"], ids=["cpu", "cuda"])
@pytest.mark.parametrize("case", CASES)
def test_masks_of_windows(case: str, device: str, dtype: int) -> None:
    batch, mask, given, later, runs = CASES[case]
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    session = tensorbox.Session(model(batch, mask, given, later, dtype), device=device)
    if device == "cuda":
        assert sum("Attention" in k["name"] for k in session.explain()) == 1
        assert not any("MatMul" in k["name"] for k in session.explain())
    sizes = {"bias": [1, HEADS, TOKENS, TOKENS], "mask": mask} | ({} if later is None else {"later": later})
    added = {n: values_of(n, s, kind) for n, s in sizes.items()}
    for images in runs:
        x = {n: RNG.standard_normal((images * WINDOWS, HEADS, TOKENS, WIDTH)).astype(kind) for n in "qkv"}
        got = session.run(x | added if given else x)["y"]
        near = 2e-5 if dtype == TensorProto.FLOAT else 4e-3
        np.testing.assert_allclose(got.astype("d"), expected(x | added), rtol=near, atol=near)


@pytest.mark.parametrize("device", ["", "cuda"], ids=["cpu", "cuda"])
@pytest.mark.parametrize("split", [[2, HEADS, WINDOWS, TOKENS, TOKENS], [2 * WINDOWS, HEADS, 3, 3, TOKENS]])
def test_other_shapes_in_between_are_left_as_they_are(split: list[int], device: str) -> None:
    """The heads are no longer where they were, or the keys' queries are split."""
    proto = model(2 * WINDOWS, [1, *split[1:3], 1, 1], True, None, TensorProto.FLOAT)
    for tensor in proto.graph.initializer:
        if tensor.name == "split":
            tensor.CopyFrom(numpy_helper.from_array(np.array(split), "split"))
    session = tensorbox.Session(proto, device=device)
    assert not any("Attention" in k["name"] for k in session.explain())
    x = {n: RNG.standard_normal((2 * WINDOWS, HEADS, TOKENS, WIDTH)).astype("f") for n in "qkv"}
    x |= {"bias": RNG.standard_normal((1, HEADS, TOKENS, TOKENS)).astype("f"),
          "mask": RNG.standard_normal((1, *split[1:3], 1, 1)).astype("f")}
    q, k, v = (x[n].astype("d") for n in "qkv")
    s = q @ k.swapaxes(2, 3) * WIDTH**-0.5 + x["bias"]
    s = (s.reshape(split) + x["mask"]).reshape(s.shape)
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(session.run(x)["y"], e / e.sum(-1, keepdims=True) @ v, rtol=2e-5, atol=2e-5)
