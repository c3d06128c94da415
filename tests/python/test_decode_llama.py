"""A decoder as LLaMA's with its caches kept in the session: root mean squares, rotation by position, heads of keys that several
of queries share, a mask of the caller's; against the same model that is handed its caches, and against float64 loops."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorbox

HEADS, SHARED, WIDTH, LAYERS = 4, 2, 8, 2
COLUMNS = HEADS * WIDTH
STATE = {"past.*": "present.*"}


def weights(dtype: type) -> dict[str, np.ndarray]:
    g = np.random.default_rng(7)
    made = {}
    for i in range(LAYERS):
        for name, columns in (("q", COLUMNS), ("k", SHARED * WIDTH), ("v", SHARED * WIDTH), ("o", COLUMNS)):
            made[f"w{name}{i}"] = (g.standard_normal((COLUMNS, columns)) * 0.3).astype(dtype)
        made[f"norm{i}"] = (1 + 0.1 * g.standard_normal(COLUMNS)).astype(dtype)
    angles = np.outer(np.arange(700), 50.0 ** (-np.arange(WIDTH // 2) / (WIDTH / 2)))
    made["cos"], made["sin"] = (np.concatenate([f(angles)] * 2, 1).astype(dtype) for f in (np.cos, np.sin))
    return made


def llama(dtype: type) -> bytes:
    kind = TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    constants = weights(dtype) | {
        "two": np.array(2, dtype), "small": np.array(1e-3, dtype), "last": np.array([-1]), "at1": np.array([1]), "at2": np.array([2]),
        "q_heads": np.array([0, 0, HEADS, WIDTH]), "k_heads": np.array([0, 0, SHARED, WIDTH]), "flat": np.array([0, 0, COLUMNS]),
        "scale": np.array(WIDTH ** -0.5, dtype), "zero": np.array([0]), "half": np.array([WIDTH // 2]), "width": np.array([WIDTH]),
        "ones": np.array([1, 1, HEADS // SHARED, 1, 1]), "one_d": np.array([1]), "heads_d": np.array([HEADS]), "three": np.array([3]),
        "four": np.array([4])}
    nodes: list[onnx.NodeProto] = []

    def node(op: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def rotated(x: str) -> str:
        low = node("Slice", [x, "zero", "half", "last"], f"{x}.low")
        high = node("Slice", [x, "half", "width", "last"], f"{x}.high")
        turned = node("Concat", [node("Neg", [high], f"{x}.minus"), low], f"{x}.turned", axis=-1)
        return node("Add", [node("Mul", [x, "c"], f"{x}.c"), node("Mul", [turned, "s"], f"{x}.s")], f"{x}.rotated")

    node("Unsqueeze", [node("Gather", ["cos", "positions"], "c3"), "at1"], "c")
    node("Unsqueeze", [node("Gather", ["sin", "positions"], "s3"), "at1"], "s")
    node("Unsqueeze", [node("Unsqueeze", ["mask", "at1"], "mask3"), "at1"], "mask4")
    inputs = [helper.make_tensor_value_info("x", kind, [1, "n", COLUMNS]),
              helper.make_tensor_value_info("positions", TensorProto.INT64, [1, "n"]),
              helper.make_tensor_value_info("mask", kind, [1, "total"])]
    outputs, x = [], "x"
    for i in range(LAYERS):
        mean = node("ReduceMean", [node("Pow", [x, "two"], f"sq{i}"), "last"], f"mean{i}")
        root = node("Sqrt", [node("Add", [mean, "small"], f"eps{i}")], f"root{i}")
        normed = node("Mul", [node("Div", [x, root], f"div{i}"), f"norm{i}"], f"normed{i}")
        parts = {}
        for name, heads in (("q", "q_heads"), ("k", "k_heads"), ("v", "k_heads")):
            product = node("MatMul", [normed, f"w{name}{i}"], f"{name}m{i}")
            parts[name] = node("Transpose", [node("Reshape", [product, heads], f"{name}r{i}")], f"{name}{i}", perm=[0, 2, 1, 3])
        parts["q"], parts["k"] = rotated(parts["q"]), rotated(parts["k"])
        for name in "kv":
            past, present = f"past.{i}.{name}", f"present.{i}.{name}"
            inputs.append(helper.make_tensor_value_info(past, kind, [1, SHARED, "past", WIDTH]))
            outputs.append(helper.make_tensor_value_info(present, kind, [1, SHARED, "longer", WIDTH]))
            node("Concat", [past, parts[name]], present, axis=2)
            wide = node("Unsqueeze", [present, "at2"], f"{name}u{i}")
            repeated = node("Expand", [wide, node("Mul", [node("Shape", [wide], f"{name}sh{i}"), "ones"], f"{name}to{i}")], f"{name}e{i}")
            shape = node("Concat", ["one_d", "heads_d", node("Slice", [f"{name}sh{i}", "three", "four"], f"{name}l{i}"), "width"],
                         f"{name}all{i}", axis=0)
            parts[name] = node("Reshape", [repeated, shape], f"{name}h{i}")
        scores = node("MatMul", [parts["q"], node("Transpose", [parts["k"]], f"kt{i}", perm=[0, 1, 3, 2])], f"scores{i}")
        masked = node("Add", [node("Mul", [scores, "scale"], f"scaled{i}"), "mask4"], f"masked{i}")
        mixed = node("MatMul", [node("Softmax", [masked], f"p{i}", axis=-1), parts["v"]], f"mixed{i}")
        joined = node("Reshape", [node("Transpose", [mixed], f"mt{i}", perm=[0, 2, 1, 3]), "flat"], f"joined{i}")
        x = node("Add", [x, node("MatMul", [joined, f"wo{i}"], f"o{i}")], f"x{i + 1}")
    outputs.insert(0, helper.make_tensor_value_info(x, kind, [1, "n", COLUMNS]))
    graph = helper.make_graph(nodes, "llama", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


class Loops:
    """The same in float64, each query by itself."""

    def __init__(self, dtype: type) -> None:
        self.w = {name: value.astype(np.float64) for name, value in weights(dtype).items()}
        self.cache = {(i, name): np.zeros((SHARED, 0, WIDTH)) for i in range(LAYERS) for name in "kv"}

    def rotated(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        half = WIDTH // 2
        return x * self.w["cos"][positions] + np.concatenate([-x[..., half:], x[..., :half]], -1) * self.w["sin"][positions]

    def step(self, x: np.ndarray, positions: np.ndarray, mask: np.ndarray) -> np.ndarray:
        x = x[0].astype(np.float64)
        for i in range(LAYERS):
            normed = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * self.w[f"norm{i}"]
            q, k, v = ((normed @ self.w[f"w{name}{i}"]).reshape(len(x), count, WIDTH).swapaxes(0, 1)
                       for name, count in (("q", HEADS), ("k", SHARED), ("v", SHARED)))
            q, k = self.rotated(q, positions[0]), self.rotated(k, positions[0])
            for name, new in (("k", k), ("v", v)):
                self.cache[i, name] = np.concatenate([self.cache[i, name], new], 1)
            mixed = np.zeros((len(x), COLUMNS))
            for h in range(HEADS):
                keys, values = (self.cache[i, name][h * SHARED // HEADS] for name in "kv")
                e = np.exp(q[h] @ keys.T * WIDTH ** -0.5 + mask[0].astype(np.float64))
                mixed[:, h * WIDTH:(h + 1) * WIDTH] = e / e.sum(-1, keepdims=True) @ values
            x = x + mixed @ self.w[f"wo{i}"]
        return x[None]


@pytest.mark.parametrize("room", [{"state_capacity": 600}, {}, {"state_capacity": 1, "state_limit": 520}], ids=str)
@pytest.mark.parametrize("device, dtype", [(None, np.float32), ("cuda", np.float32), ("cuda", np.float16)])
def test_many_lengths(device: str | None, dtype: type, room: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    if device and os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    model = llama(dtype)
    kept = tensorbox.Session(model, state=STATE, **room, **({"device": device} if device else {"compile": False}))
    loops = Loops(dtype)
    plain = tensorbox.Session(model, device=device) if dtype == np.float16 else None  # loops in halves are no measure of each element
    past = {f"past.{i}.{name}": np.zeros((1, SHARED, 0, WIDTH), dtype) for i in range(LAYERS) for name in "kv"}
    length, g = 0, np.random.default_rng(3)
    for n in [9, *[1] * 20, 3, 220, *[1] * 8, 0, 1, 240, *[1] * 15]:  # 256 and 512 are passed by single tokens
        x = (g.standard_normal((1, n, COLUMNS)) * 0.5).astype(dtype)
        feeds = {"x": x, "positions": np.arange(length, length + n)[None],
                 "mask": (g.standard_normal((1, length + n)) * 0.5).astype(dtype)}
        want = loops.step(x, feeds["positions"], feeds["mask"])
        got = kept.run(feeds)[f"x{LAYERS}"]
        if plain is None:
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=f"{n} tokens behind {length}")
        else:
            made = plain.run(feeds | past)
            if os.environ.get("TBX_TEST_GPU") is None:  # a GPU has another kernel where lengths do not grow
                np.testing.assert_array_equal(got, made[f"x{LAYERS}"], err_msg=f"{n} tokens behind {length}")
            assert np.linalg.norm(got - want) <= 1e-2 * np.linalg.norm(want)
            past = {name.replace("present", "past"): value for name, value in made.items() if name.startswith("present")}
        length += n
        assert kept.state_length == length
