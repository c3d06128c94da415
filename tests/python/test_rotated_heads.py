"""Rotation by position inside of the attention that appends on a GPU: the forms in which models have it, in all types, of all of a
head or its beginning; against float64 loops."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorbox

LAYERS, LONGEST = 2, 48
STATE = {"past.*": "present.*"}


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


class Shape(NamedTuple):
    heads: int = 4
    shared: int = 2
    width: int = 16
    turned: int = 16
    batch: int = 1

    @property
    def columns(self) -> int:
        return self.heads * self.width


def weights(s: Shape, dtype: Any) -> dict[str, np.ndarray]:
    g = np.random.default_rng(3)
    made = {}
    for i in range(LAYERS):
        for name, columns in (("q", s.columns), ("k", s.shared * s.width), ("v", s.shared * s.width), ("o", s.columns)):
            made[f"{name}{i}"] = g.standard_normal((s.columns, columns)) * (0.8 / s.columns**0.5)
    made["steps"] = 20.0 ** (-np.arange(s.turned // 2) / (s.turned / 2))
    angles = np.outer(np.arange(LONGEST), made["steps"])
    made["cos"], made["sin"] = np.cos(angles), np.sin(angles)
    made["cos2"], made["sin2"] = (np.concatenate([made[name]] * 2, 1) for name in ("cos", "sin"))
    return {name: value.astype(np.float32 if name == "steps" else dtype) for name, value in made.items()}


def is_interleaved(form: str) -> bool:
    return form == "pairs" or form.endswith("interleaved")


def decoder(form: str, s: Shape, dtype: Any, tokens: int | str = 1, key_shift: bool = False) -> bytes:
    """Layers of rotated attention over kept caches. "halves" has tables of cosines that positions choose from, "computed" makes
    them of the positions, "pairs" turns neighbours, all written out; the others are operators."""
    real = TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    constants = weights(s, dtype) | {
        "q_heads": np.array([s.batch, -1, s.heads, s.width]), "k_heads": np.array([s.batch, -1, s.shared, s.width]),
        "flat": np.array([s.batch, -1, s.columns]), "zero": np.array([0]), "half": np.array([s.turned // 2]), "end": np.array([s.turned]),
        "width": np.array([s.width]), "last": np.array([-1]), "one": np.array([1]), "two": np.array([2]), "at_0": np.array(0),
        "at_1": np.array(1), "by_2": np.array([0, 0, 0, s.turned // 2, 2]), "joined": np.array([0, 0, 0, s.turned])}
    nodes: list[onnx.NodeProto] = []

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def with_rest(x: str, turned: str) -> str:
        if s.turned == s.width:
            return turned
        return node("Concat", [turned, node("Slice", [x, "end", "width", "last"], f"{x}.rest")], f"{x}.all", axis=-1)

    def begin(x: str) -> str:
        return x if s.turned == s.width else node("Slice", [x, "zero", "end", "last"], f"{x}.begin")

    def halves(x: str) -> str:
        turns = begin(x)
        low, high = node("Slice", [turns, "zero", "half", "last"], f"{x}.low"), node("Slice", [turns, "half", "end", "last"], f"{x}.high")
        beside = node("Concat", [node("Neg", [high], f"{x}.minus"), low], f"{x}.beside", axis=-1)
        return with_rest(x, node("Add", [node("Mul", [turns, "c"], f"{x}.c"), node("Mul", [beside, "s"], f"{x}.s")], f"{x}.turned"))

    def pairs(x: str) -> str:
        by_2 = node("Reshape", [begin(x), "by_2"], f"{x}.by_2")
        a, b = node("Gather", [by_2, "at_0"], f"{x}.a", axis=-1), node("Gather", [by_2, "at_1"], f"{x}.b", axis=-1)
        first = node("Sub", [node("Mul", [a, "c"], f"{x}.ac"), node("Mul", [b, "s"], f"{x}.bs")], f"{x}.first")
        second = node("Add", [node("Mul", [a, "s"], f"{x}.as"), node("Mul", [b, "c"], f"{x}.bc")], f"{x}.second")
        both = [node("Unsqueeze", [part, "last"], f"{part}.u") for part in (first, second)]
        return with_rest(x, node("Reshape", [node("Concat", both, f"{x}.both", axis=-1), "joined"], f"{x}.turned"))

    def rotated(x: str, heads: int) -> str:
        if form == "pairs":
            return pairs(x)
        if form in ("halves", "computed"):
            return halves(x)
        partial = {} if s.turned == s.width else {"rotary_embedding_dim": s.turned, "num_heads": heads}
        if form.startswith("onnx"):
            return node("RotaryEmbedding", [x, "cos", "sin", "at"], f"{x}.turned", interleaved=int(is_interleaved(form)), **partial)
        return node("RotaryEmbedding", [x, "at", "cos", "sin"], f"{x}.turned", domain="com.microsoft",
                    interleaved=int(is_interleaved(form)), **partial)

    if form == "computed":
        angles = node("Mul", [node("Unsqueeze", [node("Cast", ["at"], "at.real", to=TensorProto.FLOAT), "last"], "at.u"), "steps"], "angles")
        twice = node("Concat", [angles, angles], "angles2", axis=-1)
        for name, op in (("c", "Cos"), ("s", "Sin")):
            node("Unsqueeze", [node("Cast", [node(op, [twice], f"{name}.wide")], f"{name}3", to=real), "one"], name)
    elif form in ("halves", "pairs"):
        for name, table in (("c", "cos"), ("s", "sin")):
            node("Unsqueeze", [node("Gather", [table + ("2" if form == "halves" else ""), "at"], f"{name}3"), "one"], name)
    inputs = [helper.make_tensor_value_info("x", real, [s.batch, tokens, s.columns]),
              helper.make_tensor_value_info("at", TensorProto.INT64, [s.batch, tokens])]
    outputs, x = [], "x"
    for i in range(LAYERS):
        parts = {}
        for name in "qkv":
            heads = node("Reshape", [node("MatMul", [x, f"{name}{i}"], f"{name}.m{i}"), "q_heads" if name == "q" else "k_heads"], f"{name}.h{i}")
            parts[name] = node("Transpose", [heads], f"{name}.t{i}", perm=[0, 2, 1, 3])
        parts["q"], parts["k"] = rotated(parts["q"], s.heads), rotated(parts["k"], s.shared)
        if key_shift:
            parts["k"] = node("Add", [parts["k"], parts["v"]], f"k.shifted{i}")
        for name in "kv":
            past, present = f"past.{i}.{name}", f"present.{i}.{name}"
            inputs.append(helper.make_tensor_value_info(past, real, [s.batch, s.shared, "past", s.width]))
            outputs.append(helper.make_tensor_value_info(present, real, [s.batch, s.shared, "all", s.width]))
            parts[name] = node("Concat", [past, parts[name]], present, axis=2)
        mixed = node("Attention", [parts["q"], parts["k"], parts["v"]], f"mixed{i}")
        joined = node("Reshape", [node("Transpose", [mixed], f"mt{i}", perm=[0, 2, 1, 3]), "flat"], f"joined{i}")
        x = node("Add", [x, node("MatMul", [joined, f"o{i}"], f"o.m{i}")], f"x{i + 1}")
    outputs.insert(0, helper.make_tensor_value_info(x, real, [s.batch, tokens, s.columns]))
    graph = helper.make_graph(nodes, form, inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()


class Loops:
    """The same in float64."""

    def __init__(self, form: str, s: Shape, dtype: Any, key_shift: bool = False) -> None:
        self.form, self.s, self.key_shift = form, s, key_shift
        self.w = {name: value.astype(np.float64) for name, value in weights(s, dtype).items()}
        self.cache = {(i, name): np.zeros((s.batch, s.shared, 0, s.width)) for i in range(LAYERS) for name in "kv"}

    def rotated(self, x: np.ndarray, at: np.ndarray) -> np.ndarray:
        n = self.s.turned
        if self.form == "computed":
            angles = at[:, None, :, None] * self.w["steps"]
            cos, sin = np.cos(angles), np.sin(angles)
        else:
            cos, sin = self.w["cos"][at][:, None], self.w["sin"][at][:, None]
        firsts, seconds = (np.arange(0, n, 2), np.arange(1, n, 2)) if is_interleaved(self.form) else (np.arange(n // 2), np.arange(n // 2, n))
        y = x.copy()
        y[..., firsts] = x[..., firsts] * cos - x[..., seconds] * sin
        y[..., seconds] = x[..., firsts] * sin + x[..., seconds] * cos
        return y

    def step(self, x: np.ndarray, at: np.ndarray) -> np.ndarray:
        s, x = self.s, x.astype(np.float64)
        for i in range(LAYERS):
            q, k, v = ((x @ self.w[f"{name}{i}"]).reshape(s.batch, x.shape[1], count, s.width).swapaxes(1, 2)
                       for name, count in (("q", s.heads), ("k", s.shared), ("v", s.shared)))
            q, k = self.rotated(q, at), self.rotated(k, at)
            k = k + v if self.key_shift else k
            for name, new in (("k", k), ("v", v)):
                self.cache[i, name] = np.concatenate([self.cache[i, name], new], 2)
            keys, values = (np.repeat(self.cache[i, name], s.heads // s.shared, axis=1) for name in "kv")
            e = np.exp(q @ keys.swapaxes(2, 3) * s.width**-0.5)
            mixed = e / e.sum(-1, keepdims=True) @ values
            x = x + mixed.swapaxes(1, 2).reshape(s.batch, -1, s.columns) @ self.w[f"o{i}"]
        return x


def check_steps(session: tensorbox.Session, loops: Loops, dtype: Any, lengths: list[int], tolerance: float) -> None:
    g, length, s = np.random.default_rng(8), 0, loops.s
    for n in lengths:
        x = g.standard_normal((s.batch, n, s.columns)).astype(dtype)
        at = (np.arange(length, length + n)[None] + np.arange(s.batch)[:, None]) % LONGEST
        got, want = session.run({"x": x, "at": at})[f"x{LAYERS}"], loops.step(x, at)
        error = np.linalg.norm(got.astype(np.float64) - want)
        assert error <= tolerance * np.linalg.norm(want), f"{n} tokens behind {length}: {error / np.linalg.norm(want)}"
        length += n
        assert session.state_length == length


def rotations(session: tensorbox.Session) -> list[str]:
    return re.findall(r"rotates \d+ elements(?: in pairs)?", session.dump("plan"))


FORMS = ["halves", "computed", "pairs", "onnx", "onnx interleaved", "microsoft", "microsoft interleaved"]
SHAPES = [Shape(), Shape(turned=8), Shape(heads=20, shared=20, width=64, turned=64), Shape(heads=3, shared=1, width=10, turned=6),
          Shape(heads=6, shared=2, width=2, turned=2), Shape(batch=2), Shape(heads=20, shared=4, width=64, turned=32, batch=2)]
HALVES = [(np.float32, "f16", 5e-3), (np.float16, "strict", 5e-3)]
CASES = [(shape, np.float32, "strict", 2e-6) for shape in SHAPES] + [(shape, *halves) for shape in (SHAPES[0], SHAPES[-1]) for halves in HALVES]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape, dtype, precision, tolerance", CASES, ids=str)
def test_attention_rotates(form: str, shape: Shape, dtype: Any, precision: str, tolerance: float) -> None:
    options = dict(device="cuda", state=STATE, state_capacity=40, precision=precision)
    model = decoder(form, shape, dtype)
    session = tensorbox.Session(model, **options)
    name = f"rotates {shape.turned} elements" + (" in pairs" if is_interleaved(form) and shape.turned > 2 else "")
    check_steps(session, Loops(form, shape, dtype), dtype, [1] * 35, tolerance)
    if dtype == np.float16 and form.startswith(("onnx", "microsoft")):
        assert not rotations(session)  # one kernel rotates and stores the new key: there is none for attention to store
        return
    assert rotations(session) == [name] * LAYERS
    apart = tensorbox.Session(model, disable_passes=["rotate_heads"], **options)
    assert not rotations(apart)
    assert len(session.explain()) <= len(apart.explain()) - LAYERS + 1  # one kernel may gather cosines and sines for all layers
    check_steps(apart, Loops(form, shape, dtype), dtype, [1, 1, 1], tolerance)


@pytest.mark.parametrize("room", [{}, {"state_capacity": 1, "state_limit": 300}], ids=str)
def test_growing_caches(room: dict[str, int]) -> None:
    session = tensorbox.Session(decoder("halves", Shape(), np.float32), device="cuda", state=STATE, **room)
    assert len(rotations(session)) == LAYERS
    check_steps(session, Loops("halves", Shape(), np.float32), np.float32, [1] * 270, 2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_several_tokens(form: str) -> None:
    """Attention of any number of tokens stores none: heads are rotated ahead of it."""
    session = tensorbox.Session(decoder(form, Shape(), np.float32, "n"), device="cuda", state=STATE, state_capacity=40)
    assert not rotations(session)
    check_steps(session, Loops(form, Shape(), np.float32), np.float32, [7, 1, 1, 3, 0, 1], 2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_keys_that_are_more_than_rotated(form: str) -> None:
    session = tensorbox.Session(decoder(form, Shape(), np.float32, key_shift=True), device="cuda", state=STATE, state_capacity=40)
    assert not rotations(session)
    check_steps(session, Loops(form, Shape(), np.float32, key_shift=True), np.float32, [1] * 8, 2e-6)


def test_packages_keep_the_rotation(tmp_path: Any) -> None:
    made = tensorbox.Session(decoder("onnx", Shape(turned=8), np.float32), device="cuda", state=STATE, state_capacity=40)
    made.save(tmp_path / "decoder.tbx")
    loaded = tensorbox.Session(tmp_path / "decoder.tbx", device="cuda")
    check_steps(loaded, Loops("onnx", Shape(turned=8), np.float32), np.float32, [1] * 9, 2e-6)
