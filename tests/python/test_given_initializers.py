"""Initializers that SessionOptions give: add_initializer, add_external_initializers, files of external data in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

tensorbox = pytest.importorskip("tensorbox")

X = np.zeros((1, 3), np.float32)
ONES = np.ones(3, np.float32)
OTHER = np.array([1, 2, 3], np.float32)
BITS = {TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT4E2M1: 4, TensorProto.UINT2: 2, TensorProto.INT2: 2,
        TensorProto.FLOAT6E2M3: 6, TensorProto.FLOAT6E3M2: 6}
NUMBERS = [number for name, number in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]


def constants(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    """A model that gives its initializers."""
    nodes = [helper.make_node("Identity", [t.name], [f"y{i}"]) for i, t in enumerate(tensors)]
    outputs = [helper.make_tensor_value_info(f"y{i}", t.data_type, list(t.dims)) for i, t in enumerate(tensors)]
    for node, output, tensor in zip(nodes, outputs, tensors, strict=True):
        if BITS.get(tensor.data_type) == 6:  # which Identity does not take
            node.op_type = "Cast"
            node.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
            output.type.tensor_type.elem_type = TensorProto.FLOAT
    return helper.make_model(helper.make_graph(nodes, "g", [], outputs, list(tensors)),
                             opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())])


def sum_model(where: str = "inside") -> onnx.ModelProto:
    """y = x + w; w is ones inside of the model, bytes 4 to 16 of a file that is not there, or an input, too."""
    w = numpy_helper.from_array(ONES, "w")
    if where == "outside":
        set_external_data(w, "w.bin", 4, 12)
        w.ClearField("raw_data")
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 3])]
    inputs += [helper.make_tensor_value_info("w", 1, [3])] if where == "input" else []
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", inputs,
                              [helper.make_tensor_value_info("y", 1, ["n", 3])], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run(model: Any, options: Any = None, **keywords: Any) -> np.ndarray:
    model = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return tensorbox.InferenceSession(model, options, compile=False, **keywords).run(None, {"x": X})[0]


@pytest.mark.parametrize("where", ["inside", "input"])
def test_values_are_those_of_onnxruntime(where: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    results = []
    for module in (onnxruntime, tensorbox):
        options, kept = module.SessionOptions(), module.OrtValue.ortvalue_from_numpy(OTHER)
        options.add_initializer("w", kept)
        unknown = module.OrtValue.ortvalue_from_numpy(X)
        options.add_initializer("of another model", unknown)
        session = module.InferenceSession(sum_model(where).SerializeToString(), options)
        results.append(session.run(None, {"x": X})[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[1], [OTHER])


@pytest.mark.parametrize("dims", [[0], [], [1], [5], [3, 1, 7]])
def test_values_of_all_types(dims: list[int]) -> None:
    """Bytes of any kind, as elements of every type, are what the session has where they lie in the model."""
    count = int(np.prod(dims))
    drawn = np.random.default_rng(7).integers(0, 256, 4096, np.uint8)
    for number in NUMBERS:
        width = -(-count * BITS[number] // 8) if number in BITS else count * helper.tensor_dtype_to_np_dtype(number).itemsize
        data = drawn[:width] & (1 if number == TensorProto.BOOL else 255)
        if count * BITS.get(number, 8) % 8:
            data[-1] &= (1 << count * BITS[number] % 8) - 1
        wanted = numpy_helper.to_array(helper.make_tensor("w0", number, dims, data.tobytes(), raw=True))
        model = constants(helper.make_tensor("w0", number, dims, bytes(width), raw=True))
        options = tensorbox.SessionOptions()
        options.add_initializer("w0", tensorbox.OrtValue(wanted))
        got = tensorbox.InferenceSession(model, options, compile=False).run(None, {})[0]
        if number in BITS:  # the bits of a byte that are none of an element's do not count
            got, wanted = got.astype(np.float32), wanted.astype(np.float32)
        assert got.dtype == wanted.dtype and got.shape == wanted.shape, TensorProto.DataType.Name(number)
        assert got.tobytes() == wanted.tobytes(), TensorProto.DataType.Name(number)


def test_strings() -> None:
    model = constants(helper.make_tensor("w0", TensorProto.STRING, [2, 1], [b"", b"x"]))
    options = tensorbox.SessionOptions()
    options.add_initializer("w0", np.array([["one"], ["\u00fc"]], dtype=object))
    assert tensorbox.InferenceSession(model, options, compile=False).run(None, {})[0].tolist() == [["one"], ["\u00fc"]]


def test_one_of_several_is_replaced() -> None:
    tensors = [numpy_helper.from_array(np.full(n, n, np.int64), f"w{n}") for n in range(4)]
    options = tensorbox.SessionOptions()
    options.add_initializer("w2", np.array([7, 8]))
    got = tensorbox.InferenceSession(constants(*tensors), options, compile=False).run(None, {})
    assert [v.tolist() for v in got] == [[], [1], [7, 8], [3, 3, 3]]


def test_values_without_a_file() -> None:
    """External data that is nowhere: its values are given, or its file is."""
    options = tensorbox.SessionOptions()
    options.add_external_initializers(["w"], [tensorbox.OrtValue.ortvalue_from_numpy(OTHER)])
    np.testing.assert_array_equal(run(sum_model("outside"), options), [OTHER])
    options = tensorbox.SessionOptions()
    file = b"1234" + OTHER.tobytes() + b"56"
    options.add_external_initializers_from_files_in_memory(["w.bin"], [file], [len(file)])
    np.testing.assert_array_equal(run(sum_model("outside"), options), [OTHER])
    np.testing.assert_array_equal(run(sum_model("inside"), options), [ONES])


def test_a_file_in_memory_is_that_of_onnxruntime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = constants(*(numpy_helper.from_array(np.arange(n, dtype=np.float32), f"w{n}") for n in (1, 5, 2000)))
    file = b"".join(numpy_helper.to_array(t)[::-1].tobytes() for t in model.graph.initializer)
    for place, tensor in zip((0, 4, 24), model.graph.initializer, strict=True):
        set_external_data(tensor, "weights", place, len(tensor.raw_data))
        tensor.ClearField("raw_data")
    model.ir_version, model.opset_import[0].version = 9, 18
    results = []
    for module in (onnxruntime, tensorbox):
        options = module.SessionOptions()
        options.add_external_initializers_from_files_in_memory(["weights"], [file], [len(file)])
        results.append(module.InferenceSession(model.SerializeToString(), options).run(None, {}))
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_array_equal(theirs, ours)


def test_other_external_data_stays_beside_the_model(tmp_path: Path) -> None:
    model = constants(*(numpy_helper.from_array(np.full(300, n, np.float32), f"w{n}") for n in range(2)))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    options = tensorbox.SessionOptions()
    options.add_initializer("w1", np.full(300, 7, np.float32))
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    outputs = tensorbox.InferenceSession(tmp_path / "m.onnx", options, compile=False).run(None, {})
    assert [set(v) for v in outputs] == [{0}, {7}]
    outputs = tensorbox.Session(tmp_path / "optimized.onnx", compile=False).run({})
    assert [set(v) for v in outputs.values()] == [{0}, {7}]
    assert not (tmp_path / "m.onnx").read_bytes() == (tmp_path / "optimized.onnx").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "optimized.onnx", "w.bin"]


def test_what_cannot_be_given() -> None:
    options = tensorbox.SessionOptions()
    options.add_initializer("w", OTHER[:2])
    with pytest.raises(tensorbox.ModelError, match=r"initializer 'w' is float32\[3\] in the model, and float32\[2\] is given"):
        run(sum_model(), options)
    options = tensorbox.SessionOptions()
    options.add_external_initializers(["w"], [OTHER.astype(np.float64)])
    with pytest.raises(tensorbox.ModelError, match=r"'w' is float32\[3\] in the model, and float64\[3\]"):
        run(sum_model(), options)
    options = tensorbox.SessionOptions()
    options.add_external_initializers(["w", "v"], [OTHER, OTHER])
    with pytest.raises(tensorbox.ModelError, match=r"add_external_initializers: the model has no initializers \['v'\]"):
        run(sum_model(), options)
    options = tensorbox.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [b"123456"], [6])
    with pytest.raises(tensorbox.ModelError, match="'w' is bytes 4 to 16 of 'w.bin', of which 6 are given"):
        run(sum_model("outside"), options)
    options.add_initializer("w", OTHER)
    with pytest.raises(RuntimeError, match="'w' is given already"):
        options.add_initializer("w", OTHER + 1)
    with pytest.raises(RuntimeError, match="2 names are given, and 1 values"):
        options.add_external_initializers(["a", "b"], [OTHER])
    with pytest.raises(RuntimeError, match="1 buffers are given, and 2 lengths"):
        options.add_external_initializers_from_files_in_memory(["a"], [b""], [0, 1])


def test_spoilt_models_are_errors_as_ever() -> None:
    options = tensorbox.SessionOptions()
    options.add_initializer("w", OTHER)
    options.add_external_initializers_from_files_in_memory(["w.bin"], [b"1234" + OTHER.tobytes()], [16])
    draw, failed = random.Random(7), 0
    for model in (sum_model().SerializeToString(), sum_model("outside").SerializeToString(), b"", b"\xff" * 40):
        for _ in range(300 if len(model) > 40 else 1):
            spoilt = bytearray(model[:draw.randint(0, len(model))] if draw.random() < 0.3 else model)
            for _ in range(draw.randint(0, 3) if spoilt else 0):
                spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
            try:
                run(bytes(spoilt), options)
            except (tensorbox.Error, ValueError):  # ValueError: x has another name now
                failed += 1
    assert failed > 200


def test_integers_one_at_a_time_and_packed() -> None:
    from tensorbox import wire

    data = memoryview(b"\x08\x03\x0a\x03\x05\x80\x01\x15\x01\x02\x03\x04\x08\x00")
    found = list(wire.fields(data, 0, len(data)))
    assert [(f.number, f.has_length, f.value) for f in found] == [(1, False, 3), (1, True, 0), (2, False, 0), (1, False, 0)]
    assert [wire.integers(data, f) for f in found if f.number == 1] == [[3], [5, 128], [0]]
    for broken in (b"\x08", b"\x0a\x02\x00", b"\x15\x00", b"\x08" + b"\xff" * 11):
        with pytest.raises(ValueError, match="ends"):
            list(wire.fields(memoryview(broken), 0, len(broken)))
