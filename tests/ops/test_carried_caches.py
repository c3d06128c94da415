"""Decoders that take caches and give them longer: attention copies what it reads. Against ONNX Runtime, with sizes that
only a run knows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tensorbox
from onnx import TensorProto, helper
from peers import expected

WIDTH = 16


def model(heads: int, kv_heads: int, *, cache: int = TensorProto.FLOAT, also_reads: bool = False) -> onnx.ModelProto:
    """One layer: keys and values are appended, each is read by the heads that share it. `also_reads`: so does another node."""

    def info(name: str, *dims: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [info("q", "b", heads, "n", WIDTH), info("k", "b", kv_heads, "n", WIDTH), info("v", "b", kv_heads, "n", WIDTH),
              info("past_k", "b", kv_heads, "past", WIDTH, kind=cache), info("past_v", "b", kv_heads, "past", WIDTH, kind=cache)]
    outputs = [info("y", "b", heads, "n", WIDTH), info("present_k", "b", kv_heads, "all", WIDTH, kind=cache),
               info("present_v", "b", kv_heads, "all", WIDTH, kind=cache)]
    constants = [onnx.numpy_helper.from_array(np.array(x, np.int64), name) for name, x in
                 {"group": [1, 1, heads // kv_heads, 1, 1], "two": [2], "joined": [0, heads, -1, WIDTH]}.items()]
    constants.append(onnx.numpy_helper.from_array(np.array(0.25, np.float32), "scale"))
    nodes = []
    for x in ("k", "v"):
        name = x
        if cache != TensorProto.FLOAT:
            nodes.append(helper.make_node("Cast", [x], [f"{x}_narrow"], to=cache))
            name = f"{x}_narrow"
        nodes += [helper.make_node("Concat", [f"past_{x}", name], [f"present_{x}"], axis=2),
                  helper.make_node("Cast", [f"present_{x}"], [f"{x}_wide"], to=TensorProto.FLOAT)]
        read = f"{x}_wide" if cache != TensorProto.FLOAT else f"present_{x}"
        if heads != kv_heads:
            nodes += [helper.make_node("Unsqueeze", [read, "two"], [f"{x}_5"]),
                      helper.make_node("Tile", [f"{x}_5", "group"], [f"{x}_all"]),
                      helper.make_node("Reshape", [f"{x}_all", "joined"], [f"{x}_heads"])]
            read = f"{x}_heads"
        nodes.append(helper.make_node("Identity", [read], [f"{x}_read"]))
    nodes += [helper.make_node("Transpose", ["k_read"], ["k_t"], perm=[0, 1, 3, 2]),
              helper.make_node("MatMul", ["q", "k_t"], ["s"]), helper.make_node("Mul", ["s", "scale"], ["scaled"]),
              helper.make_node("Softmax", ["scaled"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "v_read"], ["y"])]
    if also_reads:
        nodes.append(helper.make_node("ReduceMax", ["present_k"], ["most"], keepdims=0))
        outputs.append(info("most", kind=cache))
    graph = helper.make_graph(nodes, "layer", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds_of(heads: int, kv_heads: int, batch: int, past: int, new: int, cache: type = np.float32) -> dict[str, np.ndarray]:
    random = np.random.default_rng(past * 7 + new)

    def draw(*dims: int) -> np.ndarray:
        return random.normal(size=dims).astype(np.float32)

    return {"q": draw(batch, heads, new, WIDTH), "k": draw(batch, kv_heads, new, WIDTH), "v": draw(batch, kv_heads, new, WIDTH),
            "past_k": draw(batch, kv_heads, past, WIDTH).astype(cache), "past_v": draw(batch, kv_heads, past, WIDTH).astype(cache)}


def check(session: tensorbox.Session, onnx_model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    got = session.run(feeds)
    for value, want in zip(onnx_model.graph.output, expected(onnx_model, feeds), strict=True):
        np.testing.assert_allclose(np.float64(got[value.name]), np.float64(want), rtol=2e-5, atol=2e-5, err_msg=value.name)


@pytest.mark.parametrize("how", [{"compile": True}, {"compile": False}, {"reference": True}], ids=["compiled", "evaluated", "reference"])
@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (1, 1)])
def test_a_step_gives_its_caches(heads: int, kv_heads: int, how: dict[str, bool]) -> None:
    decoder = model(heads, kv_heads)
    session = tensorbox.Session(decoder.SerializeToString(), **how)
    for batch, past, new in [(1, 0, 1), (1, 1, 1), (2, 7, 1), (1, 700, 1), (1, 511, 3), (2, 33, 9), (1, 5, 70)]:
        check(session, decoder, feeds_of(heads, kv_heads, batch, past, new))


def test_attention_takes_the_copies() -> None:
    session = tensorbox.Session(model(4, 4).SerializeToString(), dims={"b": 1, "n": 1})
    session.run(feeds_of(4, 4, 1, 300, 1))
    calls = [step for step in session.explain() if step["kind"] == "extern"]
    assert len(calls) == 1 and "carries caches" in calls[0]["name"]
    assert any("copies the caches" in decision for decision in calls[0]["decisions"])
    off = tensorbox.Session(model(4, 4).SerializeToString(), dims={"b": 1, "n": 1}, disable_passes=["carry_caches"])
    feeds = feeds_of(4, 4, 1, 600, 1)
    for name, value in off.run(feeds).items():
        np.testing.assert_array_equal(session.run(feeds)[name], value)


def test_others_read_the_caches_as_well() -> None:
    decoder = model(4, 2, also_reads=True)
    session = tensorbox.Session(decoder.SerializeToString())
    for past in (0, 1, 90, 1025):
        check(session, decoder, feeds_of(4, 2, 1, past, 1))


def test_caches_in_halves() -> None:
    decoder = model(4, 4, cache=TensorProto.FLOAT16)
    session = tensorbox.Session(decoder.SerializeToString())
    for past in (0, 1, 37, 600):
        feeds = feeds_of(4, 4, 1, past, 1, np.float16)
        got = session.run(feeds)
        np.testing.assert_array_equal(got["present_v"], np.concatenate([feeds["past_v"], feeds["v"].astype(np.float16)], axis=2))
        check(session, decoder, feeds)


def test_observers_see_whole_caches() -> None:
    decoder = model(2, 2)
    session = tensorbox.Session(decoder.SerializeToString())
    feeds, seen = feeds_of(2, 2, 1, 50, 1), {}
    session.observe(feeds, lambda name, value: seen.update({name: np.array(value)}))
    for x in ("k", "v"):
        np.testing.assert_array_equal(seen[f"present_{x}"], np.concatenate([feeds[f"past_{x}"], feeds[x]], axis=2))


def test_profiles_count_a_cache_once_read_and_once_written() -> None:
    heads, past, size = 4, 300, 4
    session = tensorbox.Session(model(heads, heads).SerializeToString(), dims={"b": 1, "n": 1})
    feeds = feeds_of(heads, heads, 1, past, 1)
    rows = heads * WIDTH * size  # bytes of one token
    told = [step for step in session.profile(feeds) if "carries caches" in step["name"]]
    assert [step["bytes"] for step in told] == [2 * past * rows + 2 * (past + 1) * rows + 2 * rows]  # read; read and written; q, y


def near_miss(kind: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A step that gives its caches, and differs from others in one thing, so that a copy of what is past is no part of its attention."""
    past, new, total = 15, 1, 16
    random = np.random.default_rng(3)

    def draw(*dims: int) -> np.ndarray:
        return random.normal(size=dims).astype(np.float32)

    axis = {"joined heads": 1, "joined batches": 0}.get(kind, 2)
    sizes = {0: [(1, 4, total), (1, 4, total)], 1: [(2, 2, total), (2, 2, total)], 2: [(2, 4, past), (2, 4, new)]}[axis]
    lengths = {"k": [s[2] for s in sizes], "v": [11, 5] if kind == "other lengths" else [s[2] for s in sizes]}
    feeds = {"q": draw(2, 4, 1, WIDTH)}
    for x in "kv":
        feeds |= {f"past_{x}": draw(*sizes[0][:2], lengths[x][0], WIDTH), x: draw(*sizes[1][:2], lengths[x][1], WIDTH)}
    constants = {"scale": np.array(0.25, np.float32), "from": np.array([-1]), "to": np.array([-(2**60)]), "tokens": np.array([2]),
                 "back": np.array([-1]), "first": np.array([0]), "six": np.array([6])}
    nodes = [helper.make_node("Concat", [f"past_{x}", x], [f"present_{x}"], axis=axis) for x in "kv"]
    if kind == "reversed":
        nodes = [helper.make_node("Slice", [f"past_{x}", "from", "to", "tokens", "back"], [f"turned_{x}"]) for x in "kv"] + nodes
        for node, x in zip(nodes[2:], "kv", strict=True):
            node.input[0] = f"turned_{x}"
    keys, values = "present_k", "present_k" if kind == "shared" else "present_v"
    if kind == "the first tokens":
        nodes += [helper.make_node("Slice", [f"present_{x}", "first", "six", "tokens"], [f"seen_{x}"]) for x in "kv"]
        keys, values = "seen_k", "seen_v"
    if kind != "turned keys":
        nodes.append(helper.make_node("Transpose", [keys], ["k_t"], perm=[0, 1, 3, 2]))
    nodes += [helper.make_node("MatMul", ["q", keys if kind == "turned keys" else "k_t"], ["s"]), helper.make_node("Mul", ["s", "scale"], ["scaled"])]
    if kind == "read before":
        constants["width"] = np.array([3])
        nodes += [helper.make_node("ReduceMax", ["present_k", "width"], ["m"], keepdims=1),
                  helper.make_node("Transpose", ["m"], ["mask"], perm=[0, 1, 3, 2]), helper.make_node("Add", ["scaled", "mask"], ["masked"])]
    nodes += [helper.make_node("Softmax", ["masked" if kind == "read before" else "scaled"], ["p"], axis=-1), helper.make_node("MatMul", ["p", values], ["y"])]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, kind, [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in feeds.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "present_k", "present_v")],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items() if name in used])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), feeds


@pytest.mark.parametrize("how", [{"compile": True}, {"compile": False}], ids=["compiled", "evaluated"])
@pytest.mark.parametrize("kind", ["plain", "reversed", "joined heads", "joined batches", "other lengths", "shared", "the first tokens", "turned keys",
                                  "read before"])
def test_what_looks_like_a_carried_cache(kind: str, how: dict[str, bool]) -> None:
    onnx_model, feeds = near_miss(kind)
    session = tensorbox.Session(onnx_model.SerializeToString(), **how)
    check(session, onnx_model, feeds)
    carries = [step["name"] for step in session.explain() if "carries caches" in step["name"]]
    assert bool(carries) == (kind == "plain"), carries
