"""What programs written for ONNX Runtime use, with its signatures and its results."""

from __future__ import annotations

import json
import os
import pickle
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

tensorbox = pytest.importorskip("tensorbox")

X = np.arange(8, dtype=np.float32).reshape(2, 4)
FEED = {"x": X}


def two_outputs() -> onnx.ModelProto:
    """sum = x + x, negative = -x, x [batch, 4]."""
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17], producer_name: "tests", domain: "org.tests",
        model_version: 3, doc_string: "about the model">
        two (float[batch, 4] x) => (float[batch, 4] sum, float[batch, 4] negative) { sum = Add(x, x) negative = Neg(x) }""")
    model.graph.doc_string = "about the graph"
    onnx.helper.set_model_props(model, {"names": "{0: 'cat'}", "domain": "a key that is a field's name, too"})
    return model


def one(body: str, element: str = "float") -> onnx.ModelProto:
    """From x [n] to y [n]."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g ({element}[n] x) => ({element}[n] y) {{ {body} }}')


def session(options: Any = None, **keywords: Any) -> tensorbox.InferenceSession:
    return tensorbox.InferenceSession(two_outputs().SerializeToString(), options, compile=False, **keywords)


def test_output_names() -> None:
    s = session()
    negative, total = s.run(["negative", "sum"], FEED)
    np.testing.assert_array_equal(total, 2 * X)
    np.testing.assert_array_equal(negative, -X)
    assert len(s.run(["sum", "sum"], FEED)) == 2
    with pytest.raises(ValueError, match=r"unknown output names \['z'\]; the model's outputs are \['sum', 'negative'\]"):
        s.run(["z"], FEED)
    with pytest.raises(TypeError, match="a list of names"):
        s.run("sum", FEED)


def test_model_metadata() -> None:
    meta = session().get_modelmeta()
    assert (meta.producer_name, meta.domain, meta.version) == ("tests", "org.tests", 3)
    assert (meta.graph_name, meta.description, meta.graph_description) == ("two", "about the model", "about the graph")
    assert meta.custom_metadata_map == {"names": "{0: 'cat'}", "domain": "a key that is a field's name, too"}
    plain_session = tensorbox.InferenceSession(one("y = Relu(x)"), compile=False)
    assert plain_session.get_modelmeta().version == 2**63 - 1  # as ONNX Runtime says it
    assert plain_session._session.metadata.version is None


def test_metadata_survives_optimize(tmp_path: Path) -> None:
    onnx.save(two_outputs(), tmp_path / "m.onnx")
    tensorbox.optimize(tmp_path / "m.onnx", tmp_path / "small.onnx")
    small = onnx.load(tmp_path / "small.onnx")
    assert small.domain == "org.tests" and small.model_version == 3
    assert {p.key: p.value for p in small.metadata_props}["domain"].startswith("a key")


def test_every_option_can_be_set() -> None:
    options = tensorbox.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = tensorbox.ExecutionMode.ORT_PARALLEL
    options.execution_order = tensorbox.ExecutionOrder.PRIORITY_BASED
    options.add_provider("CPUExecutionProvider", {})
    options.log_severity_level, options.log_verbosity_level, options.logid = 3, 1, "name"
    options.enable_cpu_mem_arena = options.enable_mem_pattern = options.enable_mem_reuse = False
    options.use_deterministic_compute = options.use_per_session_threads = True
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    run_options = tensorbox.RunOptions()
    run_options.log_severity_level, run_options.logid = 0, "run"
    run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    for level in tensorbox.GraphOptimizationLevel:
        options.graph_optimization_level = level
        np.testing.assert_array_equal(session(options).run(None, FEED, run_options)[0], 2 * X)
    assert session(options).get_session_options() is options
    with pytest.raises(AttributeError):
        run_options.fast = True


def test_options_that_cannot_be() -> None:
    options = tensorbox.SessionOptions()
    with pytest.raises(tensorbox.UnsupportedError, match="the format ORT cannot be read"):
        options.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(ValueError, match="'TensorrtExecutionProvider' is not available"):
        options.add_provider("TensorrtExecutionProvider", {})
    with pytest.raises(RuntimeError, match="does not have configuration with key: k"):
        options.get_session_config_entry("k")
    options.intra_op_num_threads = "two"
    with pytest.raises(TypeError, match="threads is an integer, not 'two'"):
        session(options)
    stopped, training = tensorbox.RunOptions(), tensorbox.RunOptions()
    stopped.terminate, training.training_mode = True, True
    with pytest.raises(RuntimeError, match="terminate"):
        session().run(None, FEED, stopped)
    with pytest.raises(TypeError, match=r"run_options are RunOptions, not \{'terminate': True\}"):
        session().run(None, FEED, {"terminate": True})
    with pytest.raises(tensorbox.UnsupportedError, match="inference only"):
        session().run(None, FEED, training)


def test_free_dimensions() -> None:
    options = tensorbox.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    fixed = session(options)
    assert fixed.get_inputs()[0].shape == [2, 4]
    with pytest.raises(tensorbox.ModelError, match="is 1, expected 2"):
        fixed.run(None, {"x": X[:1]})


def test_disabled_optimisation_keeps_operators_apart() -> None:
    chain = one("a = Relu(x) b = Identity(a) y = Exp(b)")
    options = tensorbox.SessionOptions()
    fused = tensorbox.InferenceSession(chain, options, compile=False)
    options.graph_optimization_level = tensorbox.GraphOptimizationLevel.ORT_DISABLE_ALL
    apart = tensorbox.InferenceSession(chain, options, compile=False)
    nodes = [len(kernel["nodes"]) for s in (apart, fused) for kernel in s._session.explain()]
    assert sum(nodes) >= 3
    np.testing.assert_allclose(apart.run(None, {"x": X[0]})[0], fused.run(None, {"x": X[0]})[0], rtol=1e-6)


@pytest.mark.parametrize("as_file", [False, True])
def test_optimized_model_is_written(tmp_path: Path, as_file: bool) -> None:
    model = one("a = Identity(x) y = Relu(a)")
    onnx.save(model, tmp_path / "m.onnx")
    options = tensorbox.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "small.onnx")
    tensorbox.InferenceSession(str(tmp_path / "m.onnx") if as_file else model.SerializeToString(), options, compile=False)
    assert [n.op_type for n in onnx.load(tmp_path / "small.onnx").graph.node] == ["Relu"]


def test_profile(tmp_path: Path) -> None:
    options = tensorbox.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    s = session(options)
    for _ in range(2):
        np.testing.assert_array_equal(s.run(["sum"], FEED)[0], 2 * X)
    name = s.end_profiling()
    assert Path(name).parent == tmp_path and s.end_profiling() == ""
    events = json.loads(Path(name).read_text())
    assert [e["cat"] for e in events].count("Session") == 2
    kernels = [e for e in events if e["cat"] == "Node"]
    assert kernels and all(e["ph"] == "X" and e["dur"] >= 0 and e["args"]["nodes"] for e in kernels)
    assert {op for e in kernels for op in e["args"]["op_name"].split("+")} == {"Add", "Neg"}
    assert all(e["args"]["provider"] == "CPUExecutionProvider" for e in kernels)
    assert session().end_profiling() == ""


def test_profiles_of_one_moment_are_several_files(tmp_path: Path) -> None:
    options = tensorbox.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    sessions = [session(options) for _ in range(20)]
    for s in sessions:
        s.run(["sum"], FEED)
    names = [s.end_profiling() for s in sessions]
    assert len(set(names)) == 20 and all(json.loads(Path(name).read_text()) for name in names)


def test_providers() -> None:
    assert tensorbox.get_available_providers() == ["CPUExecutionProvider"] and tensorbox.get_device() == "CPU"
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not available"):
        s = session(providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"])
    assert s.get_providers() == ["CPUExecutionProvider"] and s.get_provider_options() == {"CPUExecutionProvider": {}}
    with pytest.raises(ValueError, match="'TensorrtExecutionProvider' is not available; available"):
        session(providers=["TensorrtExecutionProvider"])
    s.set_providers(["CPUExecutionProvider"])
    s.disable_fallback()
    s.enable_fallback()
    assert s.get_overridable_initializers() == []


def test_what_other_programs_read_of_a_session(tmp_path: Path) -> None:
    onnx.save(two_outputs(), tmp_path / "m.onnx")
    assert session()._model_path is None
    assert tensorbox.InferenceSession(tmp_path / "m.onnx", compile=False)._model_path == str(tmp_path / "m.onnx")
    with pytest.warns(UserWarning, match="disabled_optimizers has no effect"):
        session(disabled_optimizers=["ConstantFolding"])


def test_io_binding() -> None:
    s = session()
    binding = s.io_binding()
    total = tensorbox.OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("sum", total)
    binding.bind_output("negative")
    for scale in (1, 2):
        binding.bind_ortvalue_input("x", tensorbox.OrtValue.ortvalue_from_numpy(X * scale))
        s.run_with_iobinding(binding)
        np.testing.assert_array_equal(total.numpy(), 2 * scale * X)
        assert [v.data_type() for v in binding.get_outputs()] == ["tensor(float)"] * 2
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], -scale * X)
    with pytest.raises(ValueError, match="the model has no output 'y'"):
        binding.bind_output("y")
    with pytest.raises(ValueError, match="cannot be on cuda:0"):
        binding.bind_output("sum", "cuda")
    binding.clear_binding_outputs()
    with pytest.raises(ValueError, match="no output is bound"):
        s.run_with_iobinding(binding)
    binding.bind_ortvalue_output("sum", tensorbox.OrtValue.ortvalue_from_shape_and_type([3, 4], np.float32))
    with pytest.raises(tensorbox.ModelError, match="'sum'"):
        s.run_with_iobinding(binding)


def test_io_binding_to_addresses() -> None:
    s, x, y = session(), X.copy(), np.zeros_like(X)
    binding = s.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("negative", "cpu", 0, 1, y.shape, y.ctypes.data)
    s.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, -X)
    with pytest.raises(ValueError, match="needs its element_type"):
        binding.bind_output("sum", buffer_ptr=y.ctypes.data)


def test_ort_value() -> None:
    value = tensorbox.OrtValue.ortvalue_from_numpy(X)
    assert value.shape() == [2, 4] and value.element_type() == 1 and value.data_type() == "tensor(float)"
    assert value.device_name() == "cpu" and value.is_tensor() and value.has_value() and not value.is_tensor_sequence()
    assert value.tensor_size_in_bytes() == 32 and np.shares_memory(value.numpy(), X) and value.data_ptr() == X.ctypes.data
    np.testing.assert_array_equal(np.from_dlpack(value), X)
    copy = tensorbox.OrtValue.ortvalue_from_numpy(X.T)
    copy.update_inplace(np.ones((4, 2), np.float32))
    assert copy.numpy().sum() == 8
    with pytest.raises(ValueError, match="does not fit"):
        copy.update_inplace(X)
    bits = np.array([0x3F80, 0x4000], np.uint16)
    bfloat16 = tensorbox.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    assert bfloat16.numpy().tolist() == [1, 2] and bfloat16.data_type() == "tensor(bfloat16)"
    (total,) = session().run_with_ort_values(["sum"], {"x": value})
    np.testing.assert_array_equal(total.numpy(), 2 * X)


VALUE_MODELS = {
    "sequence": '<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (seq(float[m]) y) { y = SequenceConstruct(x, x) }',
    "empty": '<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (seq(int64[m]) y) { y = SequenceEmpty<dtype = 7>() }',
    "map": """<ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]> g (float[n] x) => (seq(map(int64, float)) y)
              { y = ai.onnx.ml.ZipMap<classlabels_int64s = [3, 4]>(x) }""",
}


@pytest.mark.parametrize("kind", VALUE_MODELS)
def test_types_of_values_that_are_no_tensors(kind: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = parser.parse_model(VALUE_MODELS[kind]).SerializeToString()
    said = []
    for module in (onnxruntime, tensorbox):
        x = module.OrtValue.ortvalue_from_numpy(X[0, :2])
        session = module.InferenceSession(model, providers=["CPUExecutionProvider"])
        (value,) = session.run_with_ort_values(None, {"x": x})
        said.append((value.data_type(), value.is_tensor(), value.has_value(), session.get_outputs()[0].type))
    assert said[0] == said[1]


def test_fields_begin_as_there() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    for name in ("SessionOptions", "RunOptions"):
        theirs, ours = getattr(onnxruntime, name)(), getattr(tensorbox, name)()
        fields = [f for f in dir(theirs) if not f.startswith("_") and not callable(getattr(theirs, f))]
        assert len(fields) > 4
        for field in fields:
            theirs_is = getattr(theirs, field)
            assert getattr(ours, field) == getattr(theirs_is, "value", theirs_is), field


def test_one_element_is_a_scalar() -> None:
    """ONNX Runtime does not look at the rank where a model takes a scalar, and programs give arrays of one element."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float[n] x, float s) => (float[n] y) { y = Mul(x, s) }'
                               ).SerializeToString()
    mine, theirs = tensorbox.InferenceSession(model, compile=False), onnxruntime.InferenceSession(model)
    x, two = np.arange(3, dtype=np.float32), np.float32(2)
    for s in (np.array(two), np.array([two]), np.array([[two]])):
        np.testing.assert_array_equal(mine.run(None, {"x": x, "s": s})[0], theirs.run(None, {"x": x, "s": s})[0].ravel())
    np.testing.assert_array_equal(mine.run(None, {"x": x, "s": [2.0]})[0], [0, 2, 4])
    with pytest.raises(tensorbox.ModelError, match="input 's' has rank 1, expected 0"):
        mine.run(None, {"x": x, "s": x})
    with pytest.raises(tensorbox.ModelError, match="input 's' has rank 1, expected 0"):
        tensorbox.Session(model, compile=False).run({"x": x, "s": np.array([two])})


def test_run_async() -> None:
    done, got = threading.Event(), []

    def callback(results: list[np.ndarray], user_data: object, error: str) -> None:
        got.append((results, user_data, error))
        done.set()

    session().run_async(["sum"], FEED, callback, "mine")
    assert done.wait(60)
    (results, user_data, error), = got
    assert user_data == "mine" and not error
    np.testing.assert_array_equal(results[0], 2 * X)
    done.clear()
    session().run_async(None, {"x": X[:, :3]}, callback, None)
    assert done.wait(60)
    assert got[1][0] == [] and "dimension 1 of input 'x' is 3, expected 4" in got[1][2]


def long_loop() -> tensorbox.InferenceSession:
    """A loop that takes days."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2, 4] x) => (float[2, 4] y) {
      n = Constant<value_int = 1099511627776>() c = Constant<value = bool {1}>()
      y = Loop<body = b (int64 i, bool k, float[2, 4] s) => (bool k2, float[2, 4] t) { k2 = Identity(k) t = Neg(s) }>(n, c, x) }"""
    return tensorbox.InferenceSession(parser.parse_model(text).SerializeToString(), compile=False)


def test_another_thread_ends_a_run() -> None:
    s, options = long_loop(), tensorbox.RunOptions()
    for _ in range(2):
        threading.Timer(0.2, lambda: setattr(options, "terminate", True)).start()
        with pytest.raises(tensorbox.ModelError, match="the run was cancelled"):
            s.run(None, FEED, options)
        assert options.terminate
        with pytest.raises(RuntimeError, match="not started"):
            s.run(None, FEED, options)
        options.terminate = False
    binding = s.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    threading.Timer(0.2, lambda: setattr(options, "terminate", True)).start()
    with pytest.raises(tensorbox.ModelError, match="the run was cancelled"):
        s.run_with_iobinding(binding, options)


def test_runs_inside_of_a_cancellation_end() -> None:
    stop, outer = tensorbox.Cancellation(), tensorbox.Cancellation()
    endless = long_loop()._session
    with outer, stop as entered:
        assert entered is stop and not stop.cancelled
        threading.Timer(0.2, stop.cancel).start()
        with pytest.raises(tensorbox.ModelError, match="the run was cancelled"):
            endless.run(FEED)
    assert stop.cancelled
    with outer:  # not of the one that was left
        np.testing.assert_array_equal(session()._session.run(FEED)["sum"], 2 * X)
    with stop:
        with pytest.raises(tensorbox.ModelError, match="the run was cancelled"):
            endless.run(FEED)
        stop.reset()
        np.testing.assert_array_equal(session()._session.run(FEED)["sum"], 2 * X)
    with pytest.raises(RuntimeError, match="not in it"):
        stop.__exit__(None, None, None)


def test_types_are_spelt_as_there() -> None:
    names = {"float": "float", "double": "double", "int64": "int64", "bool": "bool", "string": "string", "float16": "float16",
             "bfloat16": "bfloat16", "float8e4m3fn": "float8e4m3fn", "float8e5m2fnuz": "float8e5m2fnuz", "uint4": "uint4"}
    for onnx_name, name in names.items():
        s = tensorbox.InferenceSession(one("y = Identity(x)", onnx_name), compile=False)
        assert s.get_inputs()[0].type == s.get_outputs()[0].type == f"tensor({name})"


def test_options_of_onnxruntime_itself() -> None:
    """Who changes one import only has them from there."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = session(options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(s.run(None, FEED, onnxruntime.RunOptions())[0], 2 * X)
    assert s._session.threads == 1


def test_every_method_of_onnxruntime_is_here_or_on_the_page() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    page = (Path(__file__).parents[2] / "docs/onnxruntime.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `InferenceSession."))
    left_out = set(re.findall(r"`(\w+\.\w+)`", row))
    for name in ("InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "IOBinding"):
        theirs = {f"{name}.{m}" for m in dir(getattr(onnxruntime, name)) if not m.startswith("_")}
        ours = {f"{name}.{m}" for m in dir(getattr(tensorbox, name))}
        assert theirs - ours == {m for m in left_out if m.startswith(f"{name}.")}


def test_every_name_of_onnxruntime_is_here_or_on_the_page() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    theirs = {name for name in dir(onnxruntime) if not name.startswith("_") and name not in (
        "capi", "contextlib", "cuda_version", "import_capi_exception", "onnxruntime_validation", "package_name", "version",
        "datasets", "backend", "tools", "transformers", "quantization")}
    page = (Path(__file__).parents[2] / "docs/onnxruntime.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `LoraAdapter`"))
    assert theirs - set(dir(tensorbox)) - set(re.findall(r"`(\w+)`", row)) == set()


def test_functions_beside_sessions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TBX_CUDA_PATH", raising=False)
    tensorbox.preload_dlls(cuda=True, cudnn=False, directory="")
    assert "TBX_CUDA_PATH" not in os.environ
    tensorbox.preload_dlls(directory=tmp_path)
    assert os.environ["TBX_CUDA_PATH"] == str(tmp_path)
    tensorbox.enable_telemetry_events()
    tensorbox.disable_telemetry_events()
    assert tensorbox.get_build_info().endswith(tensorbox.__version__) and not tensorbox.has_collective_ops()


def test_sessions_say_why_they_are_not_pickled() -> None:
    with pytest.raises(TypeError, match="let it make a session of its own"):
        pickle.dumps(session())


# --- options of ONNX Runtime's own class


def symbolic_model(folder: Path | None = None) -> bytes:
    x = helper.make_tensor_value_info("x", 1, ["batch", "length", 3])
    x.type.tensor_type.shape.dim[1].denotation = "DATA_TIME"
    y = helper.make_tensor_value_info("y", 1, ["batch", "length", 3])
    return helper.make_model(helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y]),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_free_dimensions_of_the_other_class(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = tensorbox.InferenceSession(symbolic_model(), options)
    assert session.get_inputs()[0].shape == onnxruntime.InferenceSession(symbolic_model(), options).get_inputs()[0].shape
    assert session.get_inputs()[0].shape == [2, "length", 3]
    assert options.optimized_model_filepath == str(tmp_path / "optimized.onnx")
    with pytest.raises(tensorbox.ModelError, match="dimension 0 of input 'x' is 1"):
        session.run(None, {"x": np.ones((1, 4, 3), np.float32)})
    plain = tensorbox.InferenceSession(symbolic_model(), onnxruntime.SessionOptions())
    assert plain.get_inputs()[0].shape == ["batch", "length", 3]


def test_denotations_of_the_other_class() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_TIME", 2)
    with pytest.raises(tensorbox.UnsupportedError, match="denotation .'DATA_TIME'"):
        tensorbox.InferenceSession(symbolic_model(), options)


def test_entries_of_the_other_class(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(tensorbox.UnsupportedError, match="format ORT"):
        tensorbox.InferenceSession(symbolic_model(), options)
    w = np.arange(300, dtype=np.float32)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [300])],
                              [helper.make_tensor_value_info("y", 1, [300])], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    session = tensorbox.InferenceSession((tmp_path / "m.onnx").read_bytes(), options)
    np.testing.assert_array_equal(session.run(None, {"x": w})[0], w + w)
