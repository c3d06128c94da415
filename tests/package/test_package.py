"""Packages: saved, loaded in a process without a compiler, spoilt, refused."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import onnx.helper as oh
import onnx.parser
import pytest
from onnx import TensorProto, numpy_helper

import suite_packages
import tensorbox

ROOT = pathlib.Path(__file__).parents[2]
TBX = ROOT / "build/release/bin/tbx"


def model(nodes, inputs, outputs, initializers=(), opset=18):
    value = lambda name, kind, shape: oh.make_tensor_value_info(name, kind, shape)  # noqa: E731
    graph = oh.make_graph(nodes, "g", [value(*i) for i in inputs], [value(*o) for o in outputs], list(initializers))
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=9)


def network():
    """A product, generated kernels, a step whose sizes depend on data."""
    w = numpy_helper.from_array(np.random.default_rng(1).standard_normal((8, 5)).astype(np.float32), "w")
    nodes = [oh.make_node("MatMul", ["x", "w"], ["p"]), oh.make_node("Softmax", ["p"], ["y"], axis=-1),
             oh.make_node("Relu", ["p"], ["r"]), oh.make_node("NonZero", ["r"], ["at"])]
    return model(nodes, [("x", TensorProto.FLOAT, ["n", 8])],
                 [("y", TensorProto.FLOAT, ["n", 5]), ("at", TensorProto.INT64, [2, None])], [w])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp("packages") / "network.tbx"
    session = tensorbox.Session(network())
    report = session.save(file, isas=["avx2", "sse"])
    assert report.isas == ["avx2", "sse"] and report.bytes == file.stat().st_size and report.kernel_bytes > 0
    return session, file


def test_the_version_of_the_format_is_the_documented_one(saved):
    code = re.search(r"kVersion = (\d+);", (ROOT / "package/package_file.h").read_text()).group(1)
    documented = re.search(r"There is one\s+version, now (\d+);", (ROOT / "docs/packages.md").read_text()).group(1)
    written = int.from_bytes(saved[1].read_bytes()[8:12], "little")
    assert documented == code == str(written)


def in_another_process(code, *arguments):
    environment = {"PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TBX_CACHE_DIR": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("isa", ["avx2", "sse", ""])
def test_another_process_computes_the_same(isa, tmp_path):
    session = tensorbox.Session(network(), isa=isa or None, compile=bool(isa))
    session.save(tmp_path / "network.tbx")
    for n in [0, 1, 3, 37]:
        x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        in_another_process("""if True:
            import sys, numpy, tensorbox
            session = tensorbox.Session(sys.argv[1] + "/network.tbx")
            got = session.run({"x": numpy.load(sys.argv[1] + "/x.npy")})
            numpy.savez(sys.argv[1] + "/got.npz", **got)""", tmp_path)
        got, want = np.load(tmp_path / "got.npz"), session.run({"x": x})
        assert all(np.array_equal(got[name], want[name]) for name in want)


def layers():
    """A call of each kind of kernel with a problem of its own, but for convolutions, products and attention."""
    rng = np.random.default_rng(5)
    constants, nodes, outputs = [], [], []

    def constant(array):
        constants.append(numpy_helper.from_array(array, f"c{len(constants)}"))
        return constants[-1].name

    def add(op, inputs, shape, **attributes):
        outputs.append((f"y{len(outputs)}", TensorProto.FLOAT, shape))
        nodes.append(oh.make_node(op, inputs, [outputs[-1][0]], **attributes))

    floats = lambda *shape: constant(rng.standard_normal(shape).astype(np.float32))  # noqa: E731
    integers = lambda *shape: constant(rng.integers(0, 256, shape, dtype=np.uint8))  # noqa: E731
    hidden, size = 5, 32
    for op, gates, more in [("LSTM", 4, {"clip": 1.5, "input_forget": 1}), ("GRU", 3, {"linear_before_reset": 1}),
                            ("RNN", 1, {"activations": ["ThresholdedRelu", "Affine"], "activation_alpha": [0.1, 2.0]})]:
        weights = [floats(2, gates * hidden, size), floats(2, gates * hidden, hidden), floats(2, 2 * gates * hidden)]
        add(op, ["sequences", *weights], ["t", 2, "b", hidden], hidden_size=hidden, direction="bidirectional", **more)
    for level in [0, 4]:
        add("MatMulNBits", ["x", integers(7, 2, 8), floats(14), integers(7)], ["n", 7], domain="com.microsoft", K=size, N=7, bits=4,
            block_size=16, accuracy_level=level)
    for block in [0, 16]:
        scales = lambda: [floats(3, size, 2)] if block else [floats(3, size)]  # noqa: E731, B023
        add("QMoE", ["x", "router", integers(3, size, 16), *scales(), "", integers(3, size, 16), *scales()], ["n", size],
            domain="com.microsoft", k=2, expert_weight_bits=4, **({"block_size": block, "accuracy_level": 4} if block else {}))
    add("MoE", ["x", "router", floats(3, size, size), "", floats(3, size, size)], ["n", size], domain="com.microsoft", k=2)
    made = model(nodes, [("sequences", TensorProto.FLOAT, ["t", "b", size]), ("x", TensorProto.FLOAT, ["n", size]),
                         ("router", TensorProto.FLOAT, ["n", 3])], outputs, constants)
    made.opset_import.append(oh.make_opsetid("com.microsoft", 1))
    return made


def test_recurrent_layers_packed_products_and_experts(tmp_path):
    session, reference = tensorbox.Session(layers(), compile=False), tensorbox.Session(layers(), reference=True)
    session.save(tmp_path / "layers.tbx")
    loaded = tensorbox.Session(tmp_path / "layers.tbx", compile=False)
    for t, b, n in [(0, 1, 0), (1, 1, 1), (7, 3, 5), (2, 17, 33)]:
        rng = np.random.default_rng(n)
        feeds = {"sequences": (t, b, 32), "x": (n, 32), "router": (n, 3)}
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in feeds.items()}
        got, want, exact = loaded.run(feeds), session.run(feeds), reference.run(feeds)
        for name in want:
            np.testing.assert_array_equal(got[name], want[name], name)
            np.testing.assert_allclose(got[name], exact[name], rtol=1e-3, atol=2e-3 * np.abs(exact[name]).max(initial=1), err_msg=name)
    described = "\n".join(k["name"] for k in loaded.explain())
    for text in ["recurrent LSTM bidirectional", "input forget clip 1.5", "GRU bidirectional sigmoid tanh sigmoid tanh linear before reset",
                 "thresholded_relu(", "affine(", "packed MatMulNBits 32 x 7 of 4 bits in blocks of 16", "activations rounded to 8 bits"]:
        assert text in described, described


def test_equal_sessions_give_equal_files(saved, tmp_path):
    tensorbox.Session(network()).save(tmp_path / "again.tbx", isas=["sse", "avx2", "sse"])
    assert (tmp_path / "again.tbx").read_bytes() == saved[1].read_bytes()


def test_what_a_package_says_of_itself(saved):
    session, file = saved
    loaded = tensorbox.Session(file)
    assert [str(i) for i in loaded.inputs + loaded.outputs] == [str(i) for i in session.inputs + session.outputs]
    kinds = [k["kind"] for k in loaded.explain()]
    assert "extern" in kinds and "generated" in kinds
    assert [k["kind"] for k in tensorbox.Session(file, compile=False).explain()].count("evaluated") == kinds.count("generated")
    with pytest.raises(tensorbox.UnsupportedError, match="has no stage 'source'"):
        loaded.dump("source")
    with pytest.raises(tensorbox.UnsupportedError, match="cannot be made into another"):
        loaded.save(file)


def test_a_cpu_without_kernels_evaluates_and_says_so(tmp_path):
    file = tmp_path / "m.tbx"
    session = tensorbox.Session(network())
    session.save(file, isas=["avx512"])
    environment = dict(os.environ, TBX_ISA="sse", PATH="")
    done = subprocess.run([TBX, "run", file], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "has no kernels for this CPU (sse; it has: avx512)" in done.stderr
    with pytest.raises(tensorbox.ModelError, match="has no kernels for isa 'sse'; it has: avx512"):
        tensorbox.Session(file, isa="sse")


@pytest.mark.parametrize("options, text", [
    ({"dims": {"n": 2}}, "option dims is given for a package"), ({"precision": "bf16"}, "option precision"),
    ({"untrusted": True}, "which is native code"), ({"fuse": False}, "option fuse"), ({"isa": "vax"}, "unknown isa 'vax'"),
    ({"threads": -1}, "option threads is -1")])
def test_options_that_come_too_late(saved, options, text):
    with pytest.raises(tensorbox.ModelError, match=text):
        tensorbox.Session(saved[1], **options)


def parts_of(data):
    count = int.from_bytes(data[12:16], "little")
    return [(int.from_bytes(data[at + 8:at + 16], "little"), int.from_bytes(data[at + 16:at + 24], "little"))
            for at in range(32, 32 + 32 * count, 32)]


def test_damage_is_found_before_anything_runs(saved, tmp_path):
    data = saved[1].read_bytes()
    spoilt = tmp_path / "spoilt.tbx"

    def load(bytes):
        spoilt.write_bytes(bytes)
        with pytest.raises(tensorbox.ModelError) as error:
            tensorbox.Session(spoilt)
        return str(error.value)

    cuts = {8, 12, 16, 31, 32} | {at + d for o, n in parts_of(data) for at in (o, o + n) for d in (-1, 0, 1)}
    for cut in sorted(c for c in cuts if c < len(data)):
        assert "is damaged" in load(data[:cut]), cut
    assert "is damaged" in load(data + b"\0")
    random = np.random.default_rng(5)
    covered = [(0, 32 + 32 * len(parts_of(data)))] + parts_of(data)
    for start, size in covered:
        for at in random.integers(start, start + size, 12) if size else []:
            flipped = bytearray(data)
            flipped[at] ^= 1 << random.integers(8)
            load(bytes(flipped))
    later = int.from_bytes(data[8:12], "little") + 1
    assert f"version {later} of the format" in load(data[:8] + later.to_bytes(4, "little") + data[12:])


def test_no_half_written_file(saved, tmp_path):
    file = tmp_path / "m.tbx"
    file.write_bytes(b"before")
    with pytest.raises(tensorbox.ModelError, match="unknown isa 'vax'"):
        saved[0].save(file, isas=["vax"])
    assert file.read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(tensorbox.BackendError, match="cannot write"):
        saved[0].save(tmp_path / "nowhere" / "m.tbx")


def test_dimensions_that_meet_as_one(tmp_path):
    """The plan takes for granted that n and m are equal; a second one is in the package for when they are not."""
    two = model([oh.make_node("Add", ["a", "b"], ["y"])],
                [("a", TensorProto.FLOAT, ["n"]), ("b", TensorProto.FLOAT, ["m"])], [("y", TensorProto.FLOAT, None)])
    report = tensorbox.Session(two).save(tmp_path / "m.tbx")
    loaded = tensorbox.Session(tmp_path / "m.tbx")
    for n, m in [(3, 3), (1, 4), (4, 1), (1, 1), (0, 1)]:
        a, b = np.arange(n, dtype=np.float32), np.arange(m, dtype=np.float32)
        assert np.array_equal(loaded.run({"a": a, "b": b})["y"], a + b)
    assert report.programs == 2


def test_control_flow_and_sequences(tmp_path):
    """Steps on values are data of the package, their compiled parts are programs of it."""
    branch = lambda op: oh.make_graph(  # noqa: E731
        [oh.make_node(op, ["x"], ["b"])], op, [], [oh.make_tensor_value_info("b", TensorProto.FLOAT, ["n"])])
    flow = model([oh.make_node("If", ["c"], ["z"], then_branch=branch("Relu"), else_branch=branch("Neg")),
                  oh.make_node("Exp", ["z"], ["e"]), oh.make_node("SequenceConstruct", ["z", "e"], ["s"]),
                  oh.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)],
                 [("c", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, ["n"])], [("y", TensorProto.FLOAT, None)])
    tensorbox.Session(flow).save(tmp_path / "m.tbx")
    loaded = tensorbox.Session(tmp_path / "m.tbx")
    steps = loaded.dump("plan")
    assert "(If, opset 18) [s0]" in steps and "\n  else with [s1]\n" in steps and "(SequenceConstruct, opset 18)" in steps
    x = np.array([-2, -0.5, 0, 3], np.float32)
    for taken in (True, False):
        z = np.maximum(x, 0) if taken else -x
        np.testing.assert_allclose(loaded.run({"c": np.array(taken), "x": x})["y"], np.concatenate([z, np.exp(z)]), rtol=1e-6)


@pytest.mark.parametrize("where, body", [
    ("graph", "(float[n] x) => (float[n] y) { y = test.custom.Copy(x) }"),
    ("between values", "(float[n] x) => (seq(float[n]) y) { a = test.custom.Copy(x)\n y = SequenceConstruct(a, x) }"),
    ("If", "(float[n] x, bool c) => (float[m] y) { y = If (c) <then_branch = t () => (float[n] a) { a = test.custom.Copy(x) }, "
           "else_branch = e () => (float[k] b) { b = Concat <axis = 0> (x, x) }> }"),
    ("Loop", "(float[2] x, int64 k) => (float[2] y) { t = Constant <value = bool {1}> ()\n y = Loop (k, t, x) <body = "
             "b (int64 i, bool c, float[2] a) => (bool d, float[2] z) { d = Identity(c)\n z = test.custom.Copy(a) }> }"),
])
def test_operators_of_a_library_are_refused(tmp_path, where, body):
    library = ROOT / "build/release/lib/operators/test_operators.so"
    if not library.exists():
        pytest.skip("the test libraries are not built")
    copy = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "test.custom": 1]> g {body}')
    session = tensorbox.Session(copy, operator_libraries=[library], compile=False)
    with pytest.raises(tensorbox.UnsupportedError, match="Copy comes from a library of the user's and cannot be saved"):
        session.save(tmp_path / "m.tbx")
    assert not (tmp_path / "m.tbx").exists()
    onnx.save(copy, tmp_path / "m.onnx")
    done = subprocess.run([ROOT / "build/release/bin/tbx", "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.tbx", "--operators",
                           library, "--no-compile"], capture_output=True, text=True)
    assert done.returncode != 0 and "Copy comes from a library of the user's" in done.stderr, where
    assert not (tmp_path / "m.tbx").exists()


def parsed(text):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> g {text}')


def test_axes_of_a_run_are_few(tmp_path):
    """Code for all of them is in the package, though no run has been."""
    reduce = parsed("(float[2, n, 3] x, int64[1] axes) => (float[a, b, c] y) { y = ReduceSum <keepdims = 1> (x, axes) }")
    session, file = tensorbox.Session(reduce), tmp_path / "m.tbx"
    session.save(file)
    loaded = tensorbox.Session(file)
    assert loaded.made_for == []
    for n, axis in itertools.product([1, 4], range(-3, 3)):
        x = np.arange(6 * n, dtype=np.float32).reshape(2, n, 3)
        assert np.array_equal(loaded.run({"x": x, "axes": np.array([axis])})["y"], x.sum(axis, keepdims=True)), axis
    with pytest.raises(tensorbox.Error):
        loaded.run({"x": x, "axes": np.array([3])})


MANY = "(float[2, 3] x, int64[k] axes) => (float[a, b] y) { y = ReduceSum <keepdims = 1> (x, axes) }"


def test_code_that_depends_on_values(tmp_path):
    """Values that are not few: refused by name, also behind a run, or packaged for those that were seen."""
    session, file = tensorbox.Session(parsed(MANY)), tmp_path / "m.tbx"
    with pytest.raises(tensorbox.UnsupportedError, match="ReduceSum.*depends on the values of 'axes'.*for_inputs_seen"):
        session.save(file)
    with pytest.raises(tensorbox.UnsupportedError, match="depends on the values of 'axes'.*run the session once"):
        session.save(file, for_inputs_seen=True)
    x, axes = np.ones((2, 3), np.float32), np.array([1])
    want = session.run({"x": x, "axes": axes})["y"]
    with pytest.raises(tensorbox.UnsupportedError, match="the runs so far alone.*--for-inputs-seen"):
        session.save(file)
    assert not file.exists()
    session.save(file, for_inputs_seen=True)
    loaded = tensorbox.Session(file)
    assert session.made_for == [] and len(loaded.made_for) == 1 and "axes int64[1] = {1}" in loaded.made_for[0]
    assert np.array_equal(loaded.run({"x": x, "axes": axes})["y"], want)
    with pytest.raises(tensorbox.UnsupportedError, match="the package has no code for these inputs.*tbx explain"):
        loaded.run({"x": x, "axes": np.array([0])})


def test_shapes_that_break_what_is_assumed(tmp_path):
    """Dimensions that are 1 in some runs: code for all others is there from the beginning, that of the runs goes along."""
    session, file = tensorbox.Session(parsed("(float[a, b, 4] x) => (float[c, d, e] y) { y = Squeeze(x) }")), tmp_path / "m.tbx"
    seen = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in ((2, 3, 4), (1, 3, 4), (5, 1, 4), (7, 2, 4))]
    for x in seen:
        assert np.array_equal(session.run({"x": x})["y"], x.squeeze())
    with pytest.raises(tensorbox.UnsupportedError, match="for_inputs_seen"):
        session.save(file)
    session.save(file, for_inputs_seen=True)
    loaded = tensorbox.Session(file)
    for x in seen:
        got = loaded.run({"x": x})["y"]
        assert np.array_equal(got, x.squeeze()) and got.shape == x.squeeze().shape
    assert any("x float32[1, 2 or more, ?]" in line for line in loaded.made_for)
    x = np.arange(36, dtype=np.float32).reshape(1, 9, 4)
    assert np.array_equal(loaded.run({"x": x})["y"], x[0])  # 9 as any size beside an axis of 1
    with pytest.raises(tensorbox.UnsupportedError, match="no code for these inputs"):
        loaded.run({"x": np.ones((1, 1, 4), np.float32)})


def test_a_refusal_leaves_what_was_seen(tmp_path):
    """Axes that are too many to pack: those of a run are still there when they are asked for."""
    pair = parsed("(float[2, 3, 4] x, int64[2] axes) => (float[a, b, c, d, e] y) { y = Unsqueeze(x, axes) }")
    session, file = tensorbox.Session(pair), tmp_path / "m.tbx"
    inputs = {"x": np.ones((2, 3, 4), np.float32), "axes": np.array([1, 4])}
    want = session.run(inputs)["y"]
    with pytest.raises(tensorbox.UnsupportedError, match="of the runs so far alone"):
        session.save(file)
    session.save(file, for_inputs_seen=True)
    loaded = tensorbox.Session(file)
    assert np.array_equal(loaded.run(inputs)["y"], want) and "= {1, 4}" in loaded.made_for[0] and len(loaded.made_for) == 1


def test_the_command_refuses_what_a_package_would_lack(tmp_path):
    onnx.save(parsed(MANY), tmp_path / "m.onnx")
    np.save(tmp_path / "axes.npy", np.array([0, 1]))
    compiles = [TBX, "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.tbx", "--input", f"axes={tmp_path}/axes.npy"]
    done = subprocess.run(compiles, capture_output=True, text=True)
    assert done.returncode != 0 and "--for-inputs-seen" in done.stderr and not (tmp_path / "m.tbx").exists()
    assert subprocess.run([*compiles, "--for-inputs-seen"]).returncode == 0
    done = subprocess.run([TBX, "explain", tmp_path / "m.tbx"], capture_output=True, text=True)
    assert "made for" in done.stdout and "axes int64[2] = {0, 1}" in done.stdout


def test_sizes_that_pass_through_floats(tmp_path):
    """Where they are not exact there, the code is for the shapes of a run: a package is for exact ones, and says so."""
    scaled = parsed("""(float[1, 1, h, 4] x) => (float[a, b, c, d] y) { s = Shape(x)
        f = Cast <to = 1> (s)
        two = Constant <value = float[4] {1.0, 1.0, 2.0, 2.0}> ()
        scaled = Mul(f, two)
        sizes = Cast <to = 7> (scaled)
        y = Resize <mode = "nearest"> (x, , , sizes) }""")
    notes, file = [], tmp_path / "m.tbx"
    session = tensorbox.Session(scaled, log=notes.append)
    session.save(file)
    assert sum("made for sizes that floats hold exactly" in note for note in notes) == 1
    loaded = tensorbox.Session(file)
    assert loaded.made_for == ["the model: sizes that floats hold exactly, where they pass through floats"]
    for h in [1, 3, 8]:
        x = np.arange(4 * h, dtype=np.float32).reshape(1, 1, h, 4)
        assert np.array_equal(loaded.run({"x": x})["y"], session.run({"x": x})["y"])
    tensorbox.Session(scaled, dims={"h": 3}).save(file)
    assert tensorbox.Session(file).made_for == []


def test_reference_sessions_are_refused(tmp_path):
    with pytest.raises(tensorbox.UnsupportedError, match="a reference session cannot be saved"):
        tensorbox.Session(network(), reference=True).save(tmp_path / "m.tbx")


def test_sessions_on_a_gpu(tmp_path, monkeypatch):
    """The fake device's machine code is loaded and run; a GPU's cannot be, which is said."""
    monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    file = tmp_path / "m.tbx"
    model = network()
    session = tensorbox.Session(model, device="cuda")
    report = session.save(file)
    assert report.architectures == ["emulated"] and report.kernel_bytes > 0
    inputs = {i.name: np.random.default_rng(0).standard_normal([3 if isinstance(d, str) else d for d in i.shape]).astype(i.dtype)
              for i in session.inputs}
    expected = tensorbox.Session(model).run(inputs)
    with monkeypatch.context() as without:
        without.setenv("TBX_CXX", "/nowhere/c++")
        without.setenv("TBX_CACHE_DIR", str(tmp_path / "empty"))
        loaded = tensorbox.Session(file, device="cuda")
    assert {k["device"] for k in loaded.explain()} >= {"cuda"}
    for _ in range(3):
        for name, value in loaded.run(inputs).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)
        there = {name: tensorbox.to_device(value) for name, value in inputs.items()}
        for name, value in loaded.run(there, outputs="device").items():
            np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-4, atol=1e-5)
    with pytest.raises(tensorbox.ModelError, match=r"the package is for a GPU \(emulated\)"):
        tensorbox.Session(file)
    with pytest.raises(tensorbox.ModelError, match="unknown architecture 'sm_90': expected one like emulated"):
        session.save(file, architectures=["sm_90"])
    with pytest.raises(tensorbox.ModelError, match="option architectures is given for a session on the CPU"):
        tensorbox.Session(model).save(file, architectures=["sm_90"])
    tensorbox.Session(model).save(file)
    with pytest.raises(tensorbox.ModelError, match="the package has kernels for CPUs alone"):
        tensorbox.Session(file, device="cuda")


@pytest.mark.parametrize(("columns", "others"), [(2051, 0), (20001, 1)])
def test_kernels_for_a_gpu_need_what_every_gpu_has(tmp_path, monkeypatch, columns, others):
    """A session's own may take all the shared memory of its GPU, which holds rows of 20,001; those of a package may not."""
    monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    monkeypatch.setenv("TBX_CACHE_DIR", str(tmp_path / "cache"))
    sizes = [3, columns]
    graph = oh.make_graph([oh.make_node("Softmax", ["x"], ["y"])], "g", [oh.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
                              [oh.make_tensor_value_info("y", TensorProto.FLOAT, sizes)])
    session = tensorbox.Session(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), device="cuda")
    kernels = {p for p in (tmp_path / "cache").rglob("*") if p.is_file()}
    session.save(tmp_path / "m.tbx")
    assert len({p.name.split(".")[0] for p in (tmp_path / "cache").rglob("*") if p.is_file() and p not in kernels}) == others
    x = np.random.default_rng(3).standard_normal(sizes).astype("f")
    e = np.exp(x.astype("d"))
    for runs in (session, tensorbox.Session(tmp_path / "m.tbx", device="cuda")):
        np.testing.assert_allclose(runs.run({"x": x})["y"], e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-9)


def test_a_package_for_a_gpu_on_a_machine_without_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    tensorbox.Session(network(), device="cuda").save(tmp_path / "m.tbx")
    monkeypatch.delenv("TBX_FAKE_CUDA")
    with pytest.raises(tensorbox.BackendError, match="cuda:63|libcuda|driver"):
        tensorbox.Session(tmp_path / "m.tbx", device="cuda:63")


@pytest.mark.parametrize("external", [False, True])
def test_a_package_does_not_replace_the_model(external, tmp_path):
    file, weights, link = tmp_path / "m.onnx", tmp_path / "weights.data", tmp_path / "link.onnx"
    onnx.save(network(), file, save_as_external_data=external, location=weights.name, size_threshold=0)
    link.symlink_to(file)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for _ in range(2):  # compiled, and with the plan that is kept
        session = tensorbox.Session(file, cache_dir=tmp_path / "cache")
        for path in before:
            with pytest.raises(tensorbox.ModelError, match="would replace '.*', which the model is in"):
                session.save(path)
    session.save(tmp_path / "m.tbx")
    session.save(tmp_path / "m.tbx")  # a package may be
    for command in (["compile", file, "-o", link], ["dump", file, "--output", file], ["explain", file, "--trace", file]):
        done = subprocess.run([TBX, *command], capture_output=True, text=True)
        assert done.returncode == 2 and "is the model itself" in done.stderr
    assert {path: path.read_bytes() for path in before} == before


def test_bytes_of_a_package_are_refused_with_the_way_out(saved):
    with pytest.raises(tensorbox.ModelError, match=r"the bytes are a package.*\(give the path\)"):
        tensorbox.Session(saved[1].read_bytes())


def test_commands_take_packages(saved, tmp_path):
    environment = dict(os.environ, PATH="")
    onnx.save(network(), tmp_path / "m.onnx")
    assert subprocess.run([TBX, "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.tbx", "--dim", "n=4"]).returncode == 0
    for command in (["run"], ["bench"], ["explain"]):
        done = subprocess.run([TBX, *command, tmp_path / "m.tbx"], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert command == ["explain"] or "loaded, " in done.stdout
    done = subprocess.run([TBX, "compile", tmp_path / "m.tbx", "-o", tmp_path / "n.tbx"], capture_output=True, text=True)
    assert done.returncode == 2 and "is a package already" in done.stderr


def test_a_twentieth_of_the_suite(tmp_path):
    cases = sorted(p.parent.resolve() for p in (ROOT / "build/suite-cases").glob("*/*/model.onnx"))
    if not cases:
        pytest.skip("tests/suite/dump_cases.py has not written the cases")
    counts, refused, wrong = suite_packages.check(cases[3::20], tmp_path)
    assert not wrong and counts["saved"] + counts["for inputs seen"] > 90 and sum(map(len, refused.values())) <= 2


def test_models_of_the_zoo(tmp_path):
    """A recurrent one, one with steps that find out sizes, one with trees; suite_packages.py --zoo takes all."""
    models = [suite_packages.zoo.folder(name) for name in ("bigru", "ssdlite320_mobilenet_v3", "random_forest")]
    counts, refused, wrong = suite_packages.check(models, tmp_path)
    assert not wrong and counts == {"saved": 3} and not refused


def test_maps_and_complex_numbers(tmp_path):
    """Of which the suite has none."""
    zipped = oh.make_node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "ä"])
    maps = oh.make_tensor_type_proto(TensorProto.FLOAT, [])
    graph = oh.make_graph([zipped, oh.make_node("Identity", ["z"], ["w"])], "g",
                          [oh.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3]),
                           oh.make_tensor_value_info("z", TensorProto.COMPLEX64, ["n"])],
                          [oh.make_value_info("maps", oh.make_sequence_type_proto(oh.make_map_type_proto(TensorProto.STRING, maps))),
                           oh.make_tensor_value_info("w", TensorProto.COMPLEX64, ["n"])])
    case = tmp_path / "values"
    case.mkdir()
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18), oh.make_opsetid("ai.onnx.ml", 1)], ir_version=9),
              case / "model.onnx")
    rng = np.random.default_rng(4)
    np.savez(case / "inputs.npz", x=rng.standard_normal((2, 3)).astype(np.float32),
             z=(rng.standard_normal(5) + 1j * rng.standard_normal(5)).astype(np.complex64))
    (tmp_path / "work").mkdir()
    assert suite_packages.check([case], tmp_path / "work") == ({"saved": 1}, {}, [])


def test_a_result_of_other_bits_is_found(tmp_path, monkeypatch):
    right = suite_packages.run
    monkeypatch.setattr(suite_packages, "run", lambda *given: [bytes([r[0] ^ 1]) + r[1:] for r in right(*given)])
    case = tmp_path / "add"
    case.mkdir()
    infos = [oh.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "abc"]
    graph = oh.make_graph([oh.make_node("Add", ["a", "b"], ["c"])], "g", infos[:2], infos[2:])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=9), case / "model.onnx")
    np.savez(case / "inputs.npz", a=np.arange(3, dtype=np.float32), b=np.ones(3, np.float32))
    (tmp_path / "work").mkdir()
    assert suite_packages.check([case], tmp_path / "work")[2] == ["add: differs"]


def test_the_program_that_runs_them_has_the_runtime_library_alone():
    needed = subprocess.run(["ldd", suite_packages.RUNNER], check=True, capture_output=True, text=True).stdout
    assert "libtensorbox_runtime.so" in needed
    assert not re.search(r"libtensorbox\.so|libprotobuf|libonnx|libpython", needed)
    symbols = subprocess.run(["nm", "-C", suite_packages.RUNNER], check=True, capture_output=True, text=True).stdout
    assert "tbx::Session::load" in symbols and not re.search("onnx::|tbx::(importer|lowering|codegen|driver)::", symbols)


def test_a_package_for_the_instruction_set_of_its_session_computes_as_it_does(tmp_path):
    """Halves as well, which a package for any other instruction set has not."""
    x = np.random.default_rng(3).standard_normal((9, 8)).astype(np.float32)
    session = tensorbox.Session(network(), isa="avx2", precision="bf16")
    session.save(tmp_path / "m.tbx")
    loaded = tensorbox.Session(tmp_path / "m.tbx", isa="avx2")
    for name, y in session.run({"x": x}).items():
        assert np.array_equal(loaded.run({"x": x})[name], y), name


def test_packages_that_fuzzing_starts_from_can_be_loaded():
    """Of another version of the format they would be refused at once, and nothing behind that would be tried."""
    files = sorted((ROOT / "tests/fuzz/corpus").glob("*.tbx"))
    assert len(files) >= 12
    for file in files:  # refused: make them anew with tests/fuzz/make_corpus.py
        tensorbox.Session(file, compile=False)
