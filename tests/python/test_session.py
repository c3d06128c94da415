"""The Python module: DLPack and memory, ONNX Runtime's signatures, threads, options."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

tensorbox = pytest.importorskip("tensorbox")


def doubled() -> onnx.ModelProto:
    """y = x + x, x [batch, 4]."""
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubled",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def session() -> tensorbox.Session:
    return tensorbox.Session(doubled(), compile=False, threads=1)


class OnlyDLPack:
    """An array that has nothing but the DLPack protocol."""

    def __init__(self, array: np.ndarray):
        self._array = array
        self.taken = 0

    def __dlpack__(self, **options: object) -> object:
        self.taken += 1
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_dlpack_in(session: tensorbox.Session) -> None:
    x = OnlyDLPack(np.arange(8, dtype=np.float32).reshape(2, 4))
    np.testing.assert_array_equal(session.run({"x": x})["y"], x._array * 2)
    assert x.taken == 1


def test_dlpack_out_shares_memory(session: tensorbox.Session) -> None:
    y = session.run({"x": np.ones((1, 4), np.float32)})["y"]
    other = np.from_dlpack(y)
    assert np.shares_memory(y, other)
    del y  # the memory lives as long as anybody looks at it
    np.testing.assert_array_equal(other, np.full((1, 4), 2, np.float32))


def test_torch(session: tensorbox.Session) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    y = torch.from_dlpack(session.run({"x": x})["y"])
    assert torch.equal(y, x * 2)


def test_outputs_into_given_memory(session: tensorbox.Session) -> None:
    y = np.zeros((2, 4), np.float32)
    assert session.run({"x": np.ones((2, 4), np.float32)}, out={"y": y})["y"] is y
    np.testing.assert_array_equal(y, 2)
    with pytest.raises(tensorbox.ModelError, match="out lacks the outputs y"):
        session.run({"x": np.ones((2, 4), np.float32)}, out={})
    with pytest.raises(tensorbox.ModelError, match="'y'"):
        session.run({"x": np.ones((2, 4), np.float32)}, out={"y": np.zeros((3, 4), np.float32)})


def test_strided_input(session: tensorbox.Session) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1:5]
    np.testing.assert_array_equal(session.run({"x": x})["y"], x * 2)


def test_many_threads(session: tensorbox.Session) -> None:
    def one(i: int) -> bool:
        x = np.full((i % 5 + 1, 4), i, np.float32)
        return bool((session.run({"x": x})["y"] == 2 * i).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))


def test_run_releases_the_interpreter() -> None:
    # With this interval no thread is asked to let go of the interpreter; another one advances only if a run does.
    session = tensorbox.Session(doubled(), compile=False, threads=1)
    x = np.ones((1 << 18, 4), np.float32)
    given = [("x", 1, list(x.shape), x.reshape(-1).view(np.uint8))]
    ticks, stop, interval = 0, False, sys.getswitchinterval()

    def tick() -> None:
        nonlocal ticks
        while not stop:
            ticks += 1
            time.sleep(0.0001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        sys.setswitchinterval(60)
        before, runs = ticks, 0
        while ticks == before and runs < 500:
            session._core.run(given)
            runs += 1
        advanced = ticks > before
    finally:
        stop = True
        sys.setswitchinterval(interval)
        thread.join()
    assert advanced


def test_inference_session() -> None:
    options = tensorbox.SessionOptions()
    options.intra_op_num_threads = 1
    session = tensorbox.InferenceSession(doubled().SerializeToString(), options, providers=["CPUExecutionProvider"],
                                         compile=False)
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["batch", 4])
    assert (y.name, y.type) == ("y", "tensor(float)")
    assert session.get_providers() == ["CPUExecutionProvider"]
    feed = {"x": np.ones((1, 4), np.float32)}
    for names in (None, [], ["y"]):
        (out,) = session.run(names, feed)
        np.testing.assert_array_equal(out, 2)
    with pytest.raises(ValueError, match="unknown output names"):
        session.run(["z"], feed)


@pytest.mark.parametrize(("feed", "message"), [
    ({}, "x"),
    ({"x": np.ones((1, 4), np.float32), "z": np.ones(1, np.float32)}, "z"),
    ({"x": np.ones((1, 4), np.float64)}, "float64"),
    ({"x": np.ones((1, 5), np.float32)}, "5"),
    ({"x": np.ones(4, np.float32)}, "x"),
])
def test_wrong_feed(session: tensorbox.Session, feed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(tensorbox.ModelError, match=message):
        session.run(feed)


def test_a_missing_compiler_is_a_warning_unless_a_log_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBX_CXX", "/nowhere/c++")
    monkeypatch.setenv("TBX_CACHE_DIR", str(tmp_path))
    why = "no C\\+\\+ compiler found: TBX_CXX is '/nowhere/c\\+\\+'.*run in the evaluator"
    with pytest.warns(RuntimeWarning, match=why):
        session = tensorbox.Session(doubled())
    assert session.stats.evaluated_kernels > 0 and "TBX_CXX" in session.stats.not_compiled
    with pytest.warns(RuntimeWarning, match=why):
        tensorbox.InferenceSession(doubled())
    options = tensorbox.SessionOptions()
    options.log_severity_level = 3
    heard: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tensorbox.Session(doubled(), log=heard.append).stats.not_compiled == heard[0]
        tensorbox.InferenceSession(doubled(), options)
        for asked in ({"compile": False}, {"reference": True}):  # by who asks for the evaluator
            assert tensorbox.Session(doubled(), **asked).stats.not_compiled == ""
        monkeypatch.delenv("TBX_CXX")
        assert tensorbox.Session(doubled()).stats.not_compiled == ""


def test_errors_name_their_kind_once(session: tensorbox.Session) -> None:
    with pytest.raises(tensorbox.ModelError) as of_core:
        session.run({})
    assert str(of_core.value).startswith("input ")
    with pytest.raises(tensorbox.ModelError) as of_python:
        session.run({name: None for name in (i.name for i in session.inputs)})
    assert str(of_python.value).startswith("input ")


def test_names_of_outputs_are_no_inputs(session: tensorbox.Session) -> None:
    with pytest.raises(TypeError, match="not a NoneType .*InferenceSession.run"):
        session.run(None, {"x": np.zeros(3, np.float32)})  # type: ignore[arg-type]


def test_the_cpu_is_a_device() -> None:
    session = tensorbox.Session(doubled(), device="cpu", precision="strict")
    assert session.stats.device_steps == 0 and tensorbox.device_problem("cpu") == ""
    with pytest.raises(tensorbox.ModelError, match='devices are "cpu", "cuda" and'):
        tensorbox.Session(doubled(), device="gpu")


def test_what_counts_look_like(tmp_path: Path) -> None:
    session = tensorbox.Session(doubled())
    assert repr(session.stats).startswith("<tensorbox.CompileStats 1 nodes, 1 generated and 0 library kernels, ")
    report = session.save(tmp_path / "model.tbx", ["sse"])
    assert repr(report) == f"<tensorbox.PackageReport {report.bytes} bytes, 1 program(s), native kernels: sse>"


def test_unknown_options_are_errors() -> None:
    with pytest.raises(TypeError, match="tiles"):
        tensorbox.Session(doubled(), tiles=4)
    with pytest.raises(AttributeError):
        tensorbox.SessionOptions().enable_magic = True
    with pytest.raises(ValueError, match="CUDAExecutionProvider"):
        tensorbox.InferenceSession(doubled().SerializeToString(), providers=["CUDAExecutionProvider"])
    with pytest.raises(tensorbox.ModelError, match="unknown precision 'fast': expected strict, tf32, bf16, f16 or any"):
        tensorbox.Session(doubled(), precision="fast")
    with pytest.raises(tensorbox.ModelError, match="unknown pass"):
        tensorbox.Session(doubled(), disable_passes=["nix"])
    with pytest.raises(tensorbox.ModelError, match="isa"):
        tensorbox.Session(doubled(), isa="mmx")


@pytest.mark.parametrize("precision", ["strict", "bf16", "any"])
def test_precision_of_products(precision: str) -> None:
    """Within the bound of docs/precision.md for each of them; "strict" within that of float32."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((40, 96)).astype(np.float32), rng.standard_normal((96, 64)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 96])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 64])],
                              [onnx.numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    notes: list[str] = []
    session = tensorbox.Session(model, precision=precision, compile=False, log=notes.append)
    assert not notes or (precision == "bf16" and "and nothing else" in notes[0])
    error = np.abs(session.run({"x": x})["y"] - x.astype(np.float64) @ w.astype(np.float64))
    unit = 0 if precision == "strict" else 2.0**-8
    assert np.all(error <= (2 * unit + unit**2 + 98 * 2.0**-24) * (np.abs(x) @ np.abs(w)))
    names = [kernel["name"] for kernel in session.explain()]
    multiplies = not notes and any(name.endswith("MatMul in bfloat16") for name in names)
    asked = "MatMul" if precision == "strict" or notes else "MatMul in bfloat16" if multiplies else "MatMul in any precision"
    assert any(name.endswith(asked) for name in names)


def test_a_log_that_holds_the_session_is_no_leak() -> None:
    """The function sees the session through its globals, so that each holds the other."""
    program = """
import onnx, tensorbox
text = '<ir_version: 9, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
said = []
def log(message): said.append((message, session))
session = None
session = tensorbox.Session(onnx.parser.parse_model(text), compile=False, log=log)
held = tensorbox.Session(onnx.parser.parse_model(text), log=lambda message: held)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "leak" not in done.stderr


def test_what_callbacks_raise(session: tensorbox.Session, capsys: pytest.CaptureFixture[str]) -> None:
    def observer(name: str, array: np.ndarray) -> None:
        raise KeyError(name)

    with pytest.raises(KeyError, match="y"):
        session.observe({"x": np.ones((1, 4), np.float32)}, observer)
    with pytest.raises(TypeError):
        session.observe({"x": np.ones((1, 4), np.float32)}, lambda name: None)
    text = """<ir_version: 9, opset_import: ["": 17]> g (float[n] x, bool c) => (float[n] y) {
        y = If(c) <then_branch = a () => (float[n] t) { t = Neg(x) }, else_branch = b () => (float[n] e) { e = Relu(x) }> }"""
    program = "import onnx, sys, tensorbox\nsys.unraisablehook = lambda what: print(what.exc_type.__name__)\n" \
        f"tensorbox.Session(onnx.parser.parse_model({text!r}), compile=False, log=lambda message: 1 / 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and set(done.stdout.split()) == {"ZeroDivisionError"}, done.stderr


def test_elements_of_sequences_have_their_type() -> None:
    model = onnx.parser.parse_model('''<ir_version: 9, opset_import: ["": 17]>
        g (seq(float[n]) x) => (float[m] y) { y = ConcatFromSequence<axis = 0>(x) }''')
    session = tensorbox.Session(model, compile=False)
    one = np.ones(1, np.float32)
    np.testing.assert_array_equal(session.run({"x": [one, [2, 3.5]]})["y"], [1, 2, 3.5])
    with pytest.raises(tensorbox.ModelError, match="'x': an element of the sequence has type float64, expected float32"):
        session.run({"x": [one, np.ones(1)]})
    with pytest.raises(tensorbox.ModelError, match="'x' is tensor, expected sequence|'x' is a tensor"):
        session.run({"x": one})
    with pytest.raises(tensorbox.ModelError, match=r"'x': an element of the sequence is .*expected tensor\(float32\)"):
        session.run({"x": [None]})


def test_narrow_types_name_the_package_that_they_need() -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 17]> g (bfloat16[n] x) => (bfloat16[n] y) { y = Add(x, x) }')
    program = "import sys; sys.modules['ml_dtypes'] = None\nimport tensorbox\n" \
        f"try: tensorbox.Session({model.SerializeToString()!r}, compile=False)\nexcept ImportError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "arrays of bfloat16 are those of the package ml_dtypes" in done.stdout and "pip install" in done.stdout, done.stderr


def test_maps_have_their_type() -> None:
    model = onnx.parser.parse_model('''<ir_version: 9, opset_import: ["": 17, "ai.onnx.ml": 1]>
        g (map(string, float) x) => (float[1, 3] y) { y = ai.onnx.ml.DictVectorizer<string_vocabulary = ["a", "b", "c"]>(x) }''')
    session = tensorbox.Session(model, compile=False)
    np.testing.assert_array_equal(session.run({"x": {"a": 1, "c": np.float64(2.5)}})["y"], [[1, 0, 2.5]])
    np.testing.assert_array_equal(session.run({"x": {}})["y"], [[0, 0, 0]])
    for given, kind in (({"a": "b"}, "string, tensor(string)"), ({1: 2.0}, "int64, tensor(float32)")):
        expected = re.escape(f"input 'x' has a map({kind}), expected map(string, tensor(float32))")
        with pytest.raises(tensorbox.ModelError, match=expected):
            session.run({"x": given})
    model = onnx.parser.parse_model('''<ir_version: 9, opset_import: ["": 17]>
        g (seq(map(int64, float)) x) => (seq(map(int64, float)) x) { }''')
    session = tensorbox.Session(model, compile=False)
    assert session.run({"x": [{1: 2.0}, {}]})["x"] == [{1: 2.0}, {}]
    with pytest.raises(tensorbox.ModelError, match=r"has a map\(string, tensor\(float32\)\), expected map\(int64, "):
        session.run({"x": [{"a": 2.0}]})


def looping() -> onnx.ModelProto:
    """Doubles v for n times."""
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        looping (int64 n, float[4] v) => (float[4] y) {
            go = Constant <value = bool {1}> ()
            y = Loop (n, go, v) <body = once (int64 i, bool c, float[4] a) => (bool again, float[4] b) {
                again = Identity (c)
                s = ReduceSum <keepdims = 1> (a)
                t = Sub (s, s)
                b = Add (a, t)
            }>
        }""")


class Alarm(Exception):
    pass


def test_a_signal_ends_a_run() -> None:
    """As it ends Python's own work: with what the handler raises; and the session goes on."""
    session = tensorbox.Session(looping())
    v = np.arange(4, dtype=np.float32)

    def ring(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            begin = time.monotonic()
            with pytest.raises(Alarm):
                session.run({"n": np.array(2**40), "v": v})
            assert time.monotonic() - begin < 60  # of a run of many days
            np.testing.assert_array_equal(session.run({"n": np.array(3), "v": v})["y"], v)
        signal.signal(signal.SIGALRM, lambda number, frame: None)  # one that does not raise ends nothing
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with tensorbox.Cancellation() as stop:
            threading.Timer(0.6, stop.cancel).start()
            with pytest.raises(tensorbox.ModelError, match="cancelled"):
                session.run({"n": np.array(2**40), "v": v})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_session_at_exit(tmp_path: Path) -> None:
    """What a thread or a cache still holds when the interpreter ends is nothing to tell of."""
    path = tmp_path / "doubled.onnx"
    path.write_bytes(doubled().SerializeToString())
    program = f"""
import threading, time, tensorbox
session = tensorbox.Session({str(path)!r}, compile=False, threads=1)
def wait(held):
    time.sleep(60)
threading.Thread(target=wait, args=(session,), daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
