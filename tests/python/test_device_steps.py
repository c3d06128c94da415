"""Steps of decoders of one token with kept caches on a GPU: norms inside of the products behind them, gates and activations inside
of those before them, rotation and what goes into the caches inside of attention; against float64 loops, in all types, from several threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorbox

LAYERS, HEADS, SHARED, WIDTH, HIDDEN, WORDS = 2, 4, 2, 16, 96, 37
COLUMNS = HEADS * WIDTH
STATE = {"past.*": "present.*"}


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def weights(kind: str, dtype: Any) -> dict[str, np.ndarray]:
    g = np.random.default_rng(11)
    made = {}
    for i in range(LAYERS):
        for name, rows, columns in (("q", COLUMNS, COLUMNS), ("k", COLUMNS, SHARED * WIDTH), ("v", COLUMNS, SHARED * WIDTH),
                                    ("o", COLUMNS, COLUMNS), ("up", COLUMNS, HIDDEN), ("gate", COLUMNS, HIDDEN), ("down", HIDDEN, COLUMNS)):
            made[f"{name}{i}"] = g.standard_normal((rows, columns)) * 0.2
            made[f"{name}.b{i}"] = g.standard_normal(columns) * 0.2
    for i in range(2 * LAYERS + 1):
        made[f"scale{i}"], made[f"shift{i}"] = 1 + 0.1 * g.standard_normal(COLUMNS), 0.1 * g.standard_normal(COLUMNS)
    made["words"] = g.standard_normal((COLUMNS, WORDS)) * 0.2
    angles = np.outer(np.arange(64), 50.0 ** (-np.arange(WIDTH // 2) / (WIDTH / 2)))
    made["cos"], made["sin"] = np.cos(angles), np.sin(angles)
    return {name: value.astype(dtype) for name, value in made.items()}


def decoder(kind: str, dtype: Any) -> bytes:
    """"llama": root mean squares, rotation, shared heads, SiLU gates. "gpt": layer norms, biases, GELU by tanh."""
    llama, real = kind == "llama", TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    constants = weights(kind, dtype) | {"q_heads": np.array([1, 1, HEADS, WIDTH]), "k_heads": np.array([1, 1, SHARED, WIDTH]),
                                        "flat": np.array([1, 1, COLUMNS])}
    nodes: list[onnx.NodeProto] = []

    def node(op: str, inputs: list[str], outputs: str | list[str], **attributes: Any) -> str:
        outputs = outputs if isinstance(outputs, list) else [outputs]
        nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    def norm(x: str, i: int) -> str:
        if llama:
            return node("RMSNormalization", [x, f"scale{i}"], f"norm{i}", axis=-1, epsilon=1e-3)
        return node("LayerNormalization", [x, f"scale{i}", f"shift{i}"], f"norm{i}", axis=-1, epsilon=1e-3)

    def product(x: str, name: str, i: int) -> str:
        y = node("MatMul", [x, f"{name}{i}"], f"{name}.m{i}")
        return y if llama else node("Add", [y, f"{name}.b{i}"], f"{name}.s{i}")

    inputs = [helper.make_tensor_value_info("x", real, [1, 1, COLUMNS]), helper.make_tensor_value_info("at", TensorProto.INT64, [1, 1])]
    outputs, x = [], node("Mul", ["x", "x"], "x0")
    for i in range(LAYERS):
        normed, parts = norm(x, 2 * i), {}
        for name in "qkv":
            heads = node("Reshape", [product(normed, name, i), "q_heads" if name == "q" else "k_heads"], f"{name}.h{i}")
            parts[name] = node("Transpose", [heads], f"{name}.t{i}", perm=[0, 2, 1, 3])
            if llama and name != "v":
                parts[name] = node("RotaryEmbedding", [parts[name], "cos", "sin", "at"], f"{name}.r{i}")
        for name in "kv":
            past, present = f"past.{i}.{name}", f"present.{i}.{name}"
            inputs.append(helper.make_tensor_value_info(past, real, [1, SHARED, "past", WIDTH]))
            outputs.append(helper.make_tensor_value_info(present, real, [1, SHARED, "all", WIDTH]))
            parts[name] = node("Concat", [past, parts[name]], present, axis=2)
        mixed = node("Attention", [parts["q"], parts["k"], parts["v"]], f"mixed{i}")
        joined = node("Reshape", [node("Transpose", [mixed], f"mt{i}", perm=[0, 2, 1, 3]), "flat"], f"joined{i}")
        x = node("Add", [x, product(joined, "o", i)], f"x{i}.5")
        normed = norm(x, 2 * i + 1)
        if llama:
            gate = product(normed, "gate", i)
            hidden = node("Mul", [node("Mul", [gate, node("Sigmoid", [gate], f"open{i}")], f"silu{i}"), product(normed, "up", i)], f"hidden{i}")
        else:
            hidden = node("Gelu", [product(normed, "up", i)], f"hidden{i}", approximate="tanh")
        x = node("Add", [x, product(hidden, "down", i)], f"x{i + 1}")
    outputs.insert(0, helper.make_tensor_value_info(node("MatMul", [norm(x, 2 * LAYERS), "words"], "y"), real, [1, 1, WORDS]))
    graph = helper.make_graph(nodes, kind, inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString()


class Loops:
    """The same in float64."""

    def __init__(self, kind: str, dtype: Any) -> None:
        self.llama, self.w = kind == "llama", {name: value.astype(np.float64) for name, value in weights(kind, dtype).items()}
        self.cache = {(i, name): np.zeros((SHARED, 0, WIDTH)) for i in range(LAYERS) for name in "kv"}

    def norm(self, x: np.ndarray, i: int) -> np.ndarray:
        if not self.llama:
            x = x - x.mean()
        x = x / np.sqrt((x * x).mean() + 1e-3) * self.w[f"scale{i}"]
        return x if self.llama else x + self.w[f"shift{i}"]

    def product(self, x: np.ndarray, name: str, i: int) -> np.ndarray:
        y = x @ self.w[f"{name}{i}"]
        return y if self.llama else y + self.w[f"{name}.b{i}"]

    def rotated(self, x: np.ndarray, at: int) -> np.ndarray:
        a, b, cos, sin = x[:, :WIDTH // 2], x[:, WIDTH // 2:], self.w["cos"][at], self.w["sin"][at]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], 1)

    def step(self, x: np.ndarray, at: int) -> np.ndarray:
        x = x.reshape(-1).astype(np.float64) ** 2
        for i in range(LAYERS):
            normed = self.norm(x, 2 * i)
            q, k, v = (self.product(normed, name, i).reshape(-1, WIDTH) for name in "qkv")
            if self.llama:
                q, k = self.rotated(q, at), self.rotated(k, at)
            for name, new in (("k", k), ("v", v)):
                self.cache[i, name] = np.concatenate([self.cache[i, name], new[:, None]], 1)
            mixed = []
            for h in range(HEADS):
                keys, values = (self.cache[i, name][h * SHARED // HEADS] for name in "kv")
                e = np.exp(keys @ q[h] * WIDTH ** -0.5)
                mixed.append(e / e.sum() @ values)
            x = x + self.product(np.concatenate(mixed), "o", i)
            normed = self.norm(x, 2 * i + 1)
            hidden = self.product(normed, "up", i)
            if self.llama:
                gate = self.product(normed, "gate", i)
                hidden = hidden * gate / (1 + np.exp(-gate))
            else:
                hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden ** 3)))
            x = x + self.product(hidden, "down", i)
        return self.norm(x, 2 * LAYERS) @ self.w["words"]


def steps(session: tensorbox.Session, kind: str, dtype: Any, count: int, tolerance: float) -> None:
    loops, g = Loops(kind, dtype), np.random.default_rng(5)
    session.set_state({})
    for at in range(count):
        x = (g.standard_normal((1, 1, COLUMNS)) * 0.7).astype(dtype)
        got = session.run({"x": x, "at": np.array([[at]])})["y"].astype(np.float64).reshape(-1)
        want = loops.step(x, at)
        assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want), f"token {at}"


def kernels(session: tensorbox.Session) -> list[str]:
    assert all(k["device"].startswith("cuda") for k in session.explain())
    return [k["name"] for k in session.explain() if k["kind"] != "copy"]


CASES = [("llama", np.float32, "strict", 2e-6), ("gpt", np.float32, "strict", 2e-6), ("llama", np.float32, "f16", 5e-3),
         ("gpt", np.float32, "f16", 5e-3), ("llama", np.float32, "bf16", 4e-2), ("gpt", np.float32, "bf16", 4e-2),
         ("llama", np.float16, "strict", 5e-3), ("gpt", np.float16, "strict", 5e-3)]


@pytest.mark.parametrize("kind, dtype, precision, tolerance", CASES)
def test_steps_with_kept_caches(kind: str, dtype: Any, precision: str, tolerance: float) -> None:
    session = tensorbox.Session(decoder(kind, dtype), device="cuda", state=STATE, state_capacity=40, precision=precision)
    steps(session, kind, dtype, 34, tolerance)
    # Squares of x and the first norm (two kernels where it has to stay for the sum), for each layer queries, keys and values,
    # attention, which rotates them and stores the new token, and three products; the last norm is in the product behind it. One
    # more finds the cosines and sines of the position. Of a float16 model a kernel rotates in each layer, and stores the new key.
    rotation = 0 if kind == "gpt" else 1 if dtype == np.float32 else LAYERS
    names = kernels(session)
    assert len(names) == 2 + rotation + 5 * LAYERS, names
    assert sum("RowMatMul" in name for name in names) == 2 * LAYERS
    steps(session, kind, dtype, 3, tolerance)  # once more from the beginning


@pytest.mark.parametrize("kind", ["llama", "gpt"])
def test_packages_keep_the_work_of_rows(kind: str, tmp_path: Path) -> None:
    options = {"state": STATE, "state_capacity": 40}
    tensorbox.Session(decoder(kind, np.float32), device="cuda", **options).save(tmp_path / "steps.tbx")
    session = tensorbox.Session(tmp_path / "steps.tbx", device="cuda")
    steps(session, kind, np.float32, 5, 2e-6)
    assert sum("RowMatMul" in name for name in kernels(session)) == 2 * LAYERS


Weights = dict[str, np.ndarray]


def one_row(nodes: list[onnx.NodeProto], constants: Weights, k: int, outputs: dict[str, list[int]], rows: Any = 1, **options: Any) -> tensorbox.Session:
    graph = helper.make_graph(nodes, "row", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in outputs.items()],
                              [numpy_helper.from_array(v, name) for name, v in constants.items()])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return tensorbox.Session(helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString(), device="cuda", **options)


ACTIVATIONS = {"Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Silu": lambda x: x / (1 + np.exp(-x)), "Relu": lambda x: np.maximum(x, 0),
               "Gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))}


def gated_nodes(activation: str, gate_first: bool) -> list[onnx.NodeProto]:
    """y = f(norm(x) A) * (norm(x) B)."""
    make = helper.make_node
    nodes = [make("RMSNormalization", ["x", "scale"], ["n"], axis=-1, epsilon=1e-2)]
    products = [make("MatMul", ["n", "a"], ["g"]), make("MatMul", ["n", "b"], ["u"])]
    nodes += products if gate_first else products[::-1]
    if activation == "Silu":
        nodes += [make("Sigmoid", ["g"], ["open"]), make("Mul", ["g", "open"], ["f"])]
    else:
        nodes += [make(activation, ["g"], ["f"], **({"approximate": "tanh"} if activation == "Gelu" else {}))]
    return [*nodes, make("Mul", ["f", "u"], ["y"])]


def gated(x: np.ndarray, w: Weights, activation: str) -> np.ndarray:
    x, w = x.astype(np.float64), {name: v.astype(np.float64) for name, v in w.items()}
    normed = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-2) * w["scale"]
    return ACTIVATIONS[activation](normed @ w["a"]) * (normed @ w["b"])


@pytest.mark.parametrize("k, n", [(768, 2048), (2048, 5632), (4, 1), (1, 1), (63, 9), (8200, 2), (40, 0)])
@pytest.mark.parametrize("activation, gate_first", [("Silu", True), ("Silu", False), ("Gelu", True), ("Relu", False), ("Sigmoid", True)])
def test_gated_layers(k: int, n: int, activation: str, gate_first: bool) -> None:
    g = np.random.default_rng(k + n)
    w = {"scale": g.standard_normal(k), "a": g.standard_normal((k, n)) * k ** -0.5, "b": g.standard_normal((k, n)) * k ** -0.5}
    w = {name: v.astype(np.float32) for name, v in w.items()}
    if k > 768 and (activation, gate_first) != ("Silu", True):
        pytest.skip("one form of the large ones")
    session = one_row(gated_nodes(activation, gate_first), w, k, {"y": [1, n]})
    for _ in range(3):
        x = g.standard_normal((1, k)).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], gated(x, w, activation), rtol=2e-5, atol=2e-5)
    fits = k % 4 == 0 and 0 < k <= 8192 and n > 0
    assert not fits or len(kernels(session)) == (2 if activation == "Sigmoid" else 1), kernels(session)


@pytest.mark.parametrize("n, count", [(9000, 1), (16400, 2)])
def test_the_norm_of_many_results_is_a_kernel_of_its_own(n: int, count: int) -> None:
    g = np.random.default_rng(n)
    w = {"scale": g.standard_normal(8), "a": g.standard_normal((8, n)), "b": g.standard_normal((8, n))}
    w = {name: v.astype(np.float32) for name, v in w.items()}
    session = one_row(gated_nodes("Silu", True), w, 8, {"y": [1, n]})
    x = g.standard_normal((1, 8)).astype(np.float32)
    np.testing.assert_allclose(session.run({"x": x})["y"], gated(x, w, "Silu"), rtol=2e-5, atol=1e-4)
    assert len(kernels(session)) == count


def test_several_callers_of_one_session() -> None:
    g = np.random.default_rng(2)
    w = {"scale": g.standard_normal(96), "a": g.standard_normal((96, 50)) * 0.1, "b": g.standard_normal((96, 50)) * 0.1}
    w = {name: v.astype(np.float32) for name, v in w.items()}
    session = one_row(gated_nodes("Silu", True), w, 96, {"y": [1, 50]})
    xs = [g.standard_normal((1, 96)).astype(np.float32) for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for x, y in zip(xs, pool.map(lambda x: session.run({"x": x})["y"], xs)):
            np.testing.assert_allclose(y, gated(x, w, "Silu"), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [0, 1, 3, "rows"])
def test_other_numbers_of_rows(rows: Any) -> None:
    g = np.random.default_rng(4)
    w = {"scale": g.standard_normal(96), "a": g.standard_normal((96, 50)) * 0.1, "b": g.standard_normal((96, 50)) * 0.1}
    w = {name: v.astype(np.float32) for name, v in w.items()}
    session = one_row(gated_nodes("Silu", True), w, 96, {"y": [rows, 50]}, rows)
    for n in [0, 1, 5, 1] if rows == "rows" else [rows, rows]:
        x = g.standard_normal((n, 96)).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], gated(x, w, "Silu"), rtol=2e-5, atol=2e-5)
    assert any("RowMatMul" in name for name in kernels(session)) == (rows == 1)


def test_what_others_read_stays() -> None:
    """The norm, its statistics and the product before the activation are outputs, or the norm has another reader."""
    make, g = helper.make_node, np.random.default_rng(6)
    w = {name: g.standard_normal(sizes).astype(np.float32) for name, sizes in
         (("scale", 32), ("shift", 32), ("a", (32, 12)), ("b", (32, 7)))}
    x = g.standard_normal((1, 32)).astype(np.float32)
    wide = {name: v.astype(np.float64) for name, v in w.items()}
    mean, deviation = x.mean(dtype=np.float64), np.sqrt(x.var(dtype=np.float64) + 1e-2)
    normed = (x - mean) / deviation * wide["scale"] + wide["shift"]
    product = normed @ wide["a"]
    silu = product / (1 + np.exp(-product))
    expected = {"n": normed, "mean": np.array([[mean]]), "inverse": np.array([[1 / deviation]]), "p": product, "y": silu, "q": normed @ wide["b"]}
    nodes = [make("LayerNormalization", ["x", "scale", "shift"], ["n", "mean", "inverse"], epsilon=1e-2),
             make("MatMul", ["n", "a"], ["p"]), make("Sigmoid", ["p"], ["open"]), make("Mul", ["p", "open"], ["y"])]
    for given in (["n", "y"], ["mean", "y"], ["inverse", "y"], ["p", "y"], ["y"]):
        session = one_row(nodes, w, 32, {name: list(expected[name].shape) for name in given})
        got = session.run({"x": x})
        for name in given:
            np.testing.assert_allclose(got[name], expected[name], rtol=2e-5, atol=2e-5)
        assert (len(kernels(session)) == 1) == (given == ["y"])
    session = one_row([*nodes, make("MatMul", ["n", "b"], ["q"])], w, 32, {"y": [1, 12], "q": [1, 7]})
    got = session.run({"x": x})
    for name in ("y", "q"):
        np.testing.assert_allclose(got[name], expected[name], rtol=2e-5, atol=2e-5)


def packed(g: np.random.Generator, k: int, n: int, block: int) -> tuple[Weights, np.ndarray]:
    """Integers and scales of MatMulNBits, and the matrix [k, n]."""
    q, scales = g.integers(0, 16, (n, k // block, block)), (g.random((n, k // block, 1)) * 0.02 + 0.01).astype(np.float32)
    whole = ((q - 8.0) * scales).reshape(n, k).T
    return {"q": (q[..., ::2] | q[..., 1::2] << 4).astype(np.uint8), "s": scales.reshape(-1)}, whole


@pytest.mark.parametrize("level", [0, 4])
def test_packed_integers(level: int) -> None:
    """r = x + down(silu(gate(norm(x))) * up(norm(x))), of which the sum is normed again."""
    make, g, k, hidden = helper.make_node, np.random.default_rng(8), 64, 160
    sizes = {"gate": (k, hidden), "up": (k, hidden), "down": (hidden, k), "last": (k, 24)}
    constants, whole = {name: (1 + 0.2 * g.standard_normal(k)).astype(np.float32) for name in ("scale", "scale2")}, {}
    for name, (rows, columns) in sizes.items():
        both, whole[name] = packed(g, rows, columns, 32)
        constants |= {f"{name}.{part}": v for part, v in both.items()}

    def product(x: str, name: str) -> onnx.NodeProto:
        rows, columns = sizes[name]
        return make("MatMulNBits", [x, f"{name}.q", f"{name}.s"], [name], domain="com.microsoft", K=rows, N=columns, bits=4, block_size=32,
                    accuracy_level=level)

    nodes = [make("Relu", ["x"], ["r0"]), make("RMSNormalization", ["r0", "scale"], ["n"], axis=-1), product("n", "gate"), product("n", "up"),
             make("Sigmoid", ["gate"], ["open"]), make("Mul", ["gate", "open"], ["f"]), make("Mul", ["f", "up"], ["h"]), product("h", "down"),
             make("Add", ["r0", "down"], ["r"]), make("RMSNormalization", ["r", "scale2"], ["n2"], axis=-1), product("n2", "last"),
             make("Mul", ["r", "r"], ["squares"])]
    session = one_row(nodes, constants, k, {"last": [1, 24], "squares": [1, k]})
    for _ in range(3):
        x = g.standard_normal((1, k)).astype(np.float32)
        r = np.maximum(x.astype(np.float64), 0)
        n = r / np.sqrt((r * r).mean() + 1e-5) * constants["scale"]
        gate = n @ whole["gate"]
        r = r + (gate / (1 + np.exp(-gate)) * (n @ whole["up"])) @ whole["down"]
        want = r / np.sqrt((r * r).mean() + 1e-5) * constants["scale2"] @ whole["last"]
        got = session.run({"x": x})
        tolerance = 2e-5 if level == 0 else 3e-2
        assert np.linalg.norm(got["last"] - want) <= tolerance * np.linalg.norm(want)
        assert np.linalg.norm(got["squares"] - r * r) <= tolerance * np.linalg.norm(r * r)
    names = kernels(session)
    products = [name for name in names if name.startswith("cuda_packed_product") or "MatMulNBits" in name]  # the fake device, a GPU
    assert len(products) == 3 and len(names) == 5, names  # Relu and squares
