"""tbx run and tbx bench: inputs from files or random, outputs shown and saved, and every way to get it wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import Result, products, save
from onnx import TensorProto, helper, numpy_helper

Tbx = Callable[..., Result]
FEED = np.array([[-5, 1, 2], [0, -1, 7]], np.float32)
WANT = np.maximum(FEED + 2, 0) * 3


@pytest.mark.parametrize("kind", ["npy", "npz", "npz:key", "pb", "pb as floats"])
def test_inputs_from_files(tbx: Tbx, model: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"in.{kind[:3].rstrip(' ')}"
    spec = str(file)
    if kind == "npy":
        np.save(file, FEED)
    elif kind == "npz":
        np.savez_compressed(file, x=FEED, other=FEED * 2)
    elif kind == "npz:key":
        np.savez(file, values=FEED, other=FEED * 2)
        spec += ":values"
    elif kind == "pb":
        file.write_bytes(numpy_helper.from_array(FEED).SerializeToString())
    else:
        file.write_bytes(helper.make_tensor("t", 1, FEED.shape, FEED.ravel()).SerializeToString())
    done = tbx("run", model, "--no-compile", "--input", f"x={spec}", "--save", tmp_path / "out.npy")
    assert (done.code, done.err) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), WANT)
    assert "y  float32 2x3" in done.out


def test_tiered(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", FEED)
    options = ("--tiered", "--cache-dir", tmp_path / "kernels", "--input", f"x={tmp_path / 'x.npy'}")
    done = tbx("run", model, *options, "--save", tmp_path / "y.npy")
    assert done.code == 0 and "1 kernel(s) in the evaluator, 0 compiled" in done.out, done.err
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), WANT)
    assert tbx("run", model, *options[1:]).code == 0  # fills the cache
    assert tbx("run", model, *options, "--json").json["evaluated_kernels"] == 0
    assert tbx("bench", model, *options, "--repeat", 3, "--json").json["evaluated_kernels"] == 0
    assert "0 kernel(s) in the evaluator, 1 compiled" in tbx("bench", model, *options, "--repeat", 3).out
    for refused in ("--no-compile", "--reference"):
        assert "option tiered is for kernels" in tbx("run", model, "--tiered", refused).err


def test_random_inputs_have_a_seed(tbx: Tbx, model: Path) -> None:
    def first(*options: object) -> list[float]:
        return tbx("run", model, "--no-compile", "--json", "--dim", "batch=4", *options).json["outputs"][0]["first"]

    assert first("--seed", 1) == first("--seed", 1) != first("--seed", 2)


def test_json_and_archive(tbx: Tbx, tmp_path: Path) -> None:
    chain = products(tmp_path / "products.onnx")
    report = tbx("run", chain, "--no-compile", "--json", "--dim", "batch=5", "--all-values", "--save",
                 tmp_path / "all.npz").json
    assert report["outputs"][0]["shape"] == [5, 3]
    saved, weights = np.load(tmp_path / "all.npz"), onnx.load(chain).graph.initializer
    assert set(saved) == {"a", "p", "b", "y"}
    np.testing.assert_allclose(saved["y"], saved["b"] @ numpy_helper.to_array(weights[1]), rtol=1e-4, atol=1e-5)
    assert {p.name for p in tmp_path.iterdir()} == {"all.npz", "products.onnx"}  # no temporary file is left


def test_nan_is_valid_json(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 3), np.inf, np.float32))
    row = tbx("run", model, "--no-compile", "--json", "--input", f"x={tmp_path / 'x.npy'}").json["outputs"][0]
    assert row["max"] is None and row["first"] == [None] * 3


@pytest.mark.parametrize(("onnx_type", "values"), [(TensorProto.INT64, [2**60 + 1, -5, 1234567]), (TensorProto.INT2, [-2, -1, 1])])
def test_integers_are_shown_as_they_are(tbx: Tbx, tmp_path: Path, onnx_type: int, values: list[int]) -> None:
    """2**60 + 1 is no double."""
    model = save(tmp_path / "cast.onnx", [helper.make_node("Cast", ["x"], ["y"], to=onnx_type)],
                 [helper.make_tensor_value_info("x", TensorProto.INT64, [3])],
                 [helper.make_tensor_value_info("y", onnx_type, [3])], opset=25)
    np.save(tmp_path / "x.npy", np.array(values))
    given = ("run", model, "--no-compile", "--input", f"x={tmp_path / 'x.npy'}")
    row = tbx(*given, "--json").json["outputs"][0]
    assert row["first"] == values and (row["min"], row["max"]) == (min(values), max(values))
    assert all(type(value) is int for value in (*row["first"], row["min"], row["max"]))
    assert f"min {min(values)}  max {max(values)}  mean" in tbx(*given).out


def test_picture(tbx: Tbx, digits: Path) -> None:
    done = tbx("run", digits / "digits.onnx", "--json", "--input", f"image={digits / 'images' / '0021_1.png'}")
    assert int(np.argmax(done.json["outputs"][0]["first"])) == 1


def test_saved_strings(tbx: Tbx, tmp_path: Path) -> None:
    names = save(tmp_path / "s.onnx", [helper.make_node("Identity", ["a"], ["b"])],
                 [helper.make_tensor_value_info("a", TensorProto.STRING, [2])],
                 [helper.make_tensor_value_info("b", TensorProto.STRING, [2])])
    np.save(tmp_path / "a.npy", np.array(["héllo", "日本 \U0001f600"]))
    done = tbx("run", names, "--no-compile", "--input", f"a={tmp_path / 'a.npy'}", "--save", tmp_path / "b.npy")
    assert done.code == 0, done.err
    assert np.load(tmp_path / "b.npy").tolist() == ["héllo", "日本 \U0001f600"]
    done = tbx("run", names, "--no-compile")
    assert done.code == 2 and "--input a=x.npy" in done.err


def wrong_calls() -> list[tuple[list[str], int, str]]:
    """Arguments after `run MODEL`, exit code, part of the message. {tmp} is a folder with x.npy and friends."""
    return [
        (["--bogus"], 2, "--bogus"),
        (["--input", "nix={tmp}/x.npy"], 2, "the model has no input 'nix'; its inputs are: x"),
        (["--input", "x"], 2, "expected name=value"),
        (["--input", "x={tmp}/none.npy"], 2, "no such file"),
        (["--input", "x={tmp}"], 2, "unknown kind of file"),
        (["--input", "x={tmp}/none.png"], 2, "no such file"),
        (["--input", "x={tmp}/text.npy"], 2, "not a .npy file"),
        (["--input", "x={tmp}/short.npy"], 2, "cut short"),
        (["--input", "x={tmp}/text.npz"], 2, "not a .npz archive"),
        (["--input", "x={tmp}/text.pb"], 2, "TensorProto"),
        (["--input", "x={tmp}/two.npz:c"], 2, "has no array 'c', but a, b"),
        (["--input", "x={tmp}/two.npz"], 2, "has no array 'x', but a, b"),
        (["--input", "x={tmp}/x.npy", "--input", "x={tmp}/x.npy"], 2, "given twice"),
        (["--input", "x={tmp}/double.npy"], 3, "float64"),
        (["--input", "x={tmp}/wide.npy"], 3, "'x'"),
        (["--input", "x={tmp}/rank.npy"], 3, "'x'"),
        (["--dim", "batch=abc"], 2, "'abc' is not a size"),
        (["--dim", "batch=-1"], 2, "'-1' is not a size"),
        (["--dim", "nix=1"], 2, "--dim nix: no such dimension; the model's are: batch"),
        (["--dim", "batch=99999999999999"], 2, "more than a terabyte"),
        (["--save", "{tmp}/none/out.npz"], 2, "there is no folder"),
        (["--save", "{tmp}/out.txt"], 2, ".npz"),
        (["--all-values"], 2, "--save"),
        (["--isa", "mmx"], 2, "--isa"),
        (["--threads", "-3"], 2, "--threads"),
        (["--disable-pass", "nix"], 2, "there is no pass 'nix'"),
        (["--max-memory", "many"], 2, "--max-memory"),
        (["--seed", "-1"], 2, "'-1' is not a whole number from 0"),
        (["--seed", "18446744073709551616"], 2, "is not a whole number from 0 to 2^64 - 1"),
    ]


@pytest.mark.parametrize(("arguments", "code", "message"), wrong_calls())
def test_wrong_call(tbx: Tbx, model: Path, tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    np.save(tmp_path / "x.npy", FEED)
    np.save(tmp_path / "double.npy", FEED.astype(np.float64))
    np.save(tmp_path / "wide.npy", np.zeros((2, 4), np.float32))
    np.save(tmp_path / "rank.npy", np.zeros(3, np.float32))
    np.savez(tmp_path / "two.npz", a=FEED, b=FEED)
    for name in ("text.npy", "text.npz", "text.pb"):
        (tmp_path / name).write_text("This is no tensor.")
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-4])
    done = tbx("run", model, "--no-compile", "--json", *[a.format(tmp=tmp_path) for a in arguments])
    assert done.code == code, done.err
    assert message in done.err
    assert done.out == ""


@pytest.mark.parametrize(("name", "content", "code", "message"), [
    ("none.onnx", None, 2, "does not exist"),
    ("text.onnx", b"root:x:0:0:root:/root:/bin/bash\n", 3, "not a valid ONNX model"),
    ("empty.onnx", b"", 3, "ModelError"),
])
def test_no_model(tbx: Tbx, tmp_path: Path, name: str, content: bytes | None, code: int, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for command in ("run", "bench", "explain", "dump", "compare"):
        done = tbx(command, tmp_path / name)
        assert (done.code, done.out) == (code, ""), (command, done.err)
        assert message in done.err
    assert tbx("run", tmp_path).code == 2


def test_options_may_precede_the_model(tbx: Tbx, model: Path) -> None:
    done = tbx("run", "--dim", "batch=2", "--disable-pass", "fuse_gelu", "--no-compile", model)
    assert done.code == 0, done.err


def test_bench(tbx: Tbx, model: Path) -> None:
    report = tbx("bench", model, "--no-compile", "--repeat", 20, "--clients", 2, "--warmup", 0, "--json").json
    assert report["runs"] == 40 and report["clients"] == 2
    order = [report[k] for k in ("min_ms", "median_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")]
    assert order == sorted(order) and report["runs_per_second"] > 0
    done = tbx("bench", model, "--no-compile", "--duration", 0.05)
    assert done.code == 0 and "runs/s" in done.out


def test_outputs_that_are_no_tensors(tbx: Tbx, tmp_path: Path) -> None:
    """As a classifier of sklearn has them: a label, and a map of probabilities."""
    info = helper.make_tensor_value_info
    maps = helper.make_value_info("maps", helper.make_sequence_type_proto(helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))))
    nodes = [helper.make_node("Softmax", ["x"], ["p"], "softmax"), helper.make_node("ArgMax", ["p"], ["label"], "best", axis=1, keepdims=0),
             helper.make_node("ZipMap", ["p"], ["maps"], "zip", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["batch", 3])], [info("label", TensorProto.INT64, ["batch"]), maps])
    model = tmp_path / "maps.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8), model)
    assert tbx("bench", model, "--repeat", 3, "--dim", "batch=2", "--json").json["runs"] == 3
    kernels = tbx("explain", model, "--profile", "--json").json["kernels"]
    assert {node for k in kernels for node in k["nodes"]} >= {"softmax (Softmax)"} and any(k["time_ns"] > 0 for k in kernels)
    compared = tbx("compare", model, "--dim", "batch=2", "--json").json
    assert compared["compared"] >= 3 and compared["first_difference"] is None


def test_devices(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    """The fake device: inputs and outputs in its memory, and a package for it."""
    fake = {"TBX_FAKE_CUDA": "1"}
    done = tbx("bench", model, "--device", "cuda", "--on-device", "--repeat", 5, "--json", environment=fake)
    assert done.code == 0 and done.json["runs"] == 5
    done = tbx("run", model, "--device", "cpu", environment=fake)
    assert done.code == 0 and "on the host" not in done.out
    done = tbx("bench", model, "--on-device", "--device", "cpu", environment=fake)
    assert done.code == 2 and "--on-device needs --device cuda" in done.err
    done = tbx("bench", model, "--on-device", environment=fake)
    assert done.code == 2 and "--on-device needs --device cuda" in done.err
    package = tmp_path / "model.tbx"
    done = tbx("compile", model, "-o", package, "--device", "cuda", environment=fake)
    assert done.code == 0 and "for GPUs: emulated" in done.out
    done = tbx("run", package, "--device", "cuda", "--save", tmp_path / "y.npy", environment=fake)
    assert done.code == 0
    done = tbx("run", package, environment=fake)
    assert done.code != 0 and "the package is for a GPU (emulated)" in done.err and 'device="cuda"' in done.err
    done = tbx("compile", model, "-o", package, "--device", "cuda:sm_90", environment=fake)
    assert done.code != 0 and "unknown architecture 'sm_90'" in done.err


@pytest.mark.parametrize("arguments", [["--repeat", "-1"], ["--warmup", "-1"], ["--clients", "0"], ["--duration", "-1"], ["--duration", "nan"]])
def test_bench_wrong_call(tbx: Tbx, model: Path, arguments: list[str]) -> None:
    done = tbx("bench", model, *arguments)
    assert done.code == 2 and arguments[0] in done.err


@pytest.mark.parametrize("x", [
    np.asfortranarray(FEED), FEED.astype(">f4"), np.asfortranarray(FEED.astype(">f4")), FEED[:, ::-1][:, ::-1], FEED[:0],
], ids=["fortran", "big-endian", "both", "strided", "empty"])
def test_npy_of_any_order(tbx: Tbx, model: Path, tmp_path: Path, x: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", x)
    done = tbx("run", model, "--no-compile", "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "y.npy")
    assert (done.code, done.err) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.maximum(x.astype(np.float32) + 2, 0) * 3)


def test_npy_of_three_dimensions_in_fortran_order(tbx: Tbx, tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    path = save(tmp_path / "m.onnx", [helper.make_node("Identity", ["x"], ["y"])], [info("x", TensorProto.COMPLEX64, list("abc"))],
                [info("y", TensorProto.COMPLEX64, list("abc"))])
    x = (np.arange(24) + 1j).astype(">c8").reshape(2, 3, 4)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    assert tbx("run", path, "--no-compile", "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "y.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x)


@pytest.mark.parametrize("type_name", ["bfloat16", "float8_e4m3fn", "int4", "uint4"])
def test_npy_of_types_that_numpy_saves_as_bytes(tbx: Tbx, tmp_path: Path, type_name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    element = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, type_name)))
    info = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=1)], "g", [info("x", element, ["n"])],
                              [info("y", TensorProto.FLOAT, ["n"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    x = np.array([0, 1, 5, 7] if type_name == "uint4" else [0, 1, -2, -7], getattr(ml_dtypes, type_name))
    np.save(tmp_path / "x.npy", x)
    done = tbx("run", tmp_path / "m.onnx", "--no-compile", "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "y.npy")
    assert (done.code, done.err) == (0, "")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x.astype(np.float32))


@pytest.mark.parametrize("words", [np.array(["a", "word", "日本"]), np.array(["a", "word"], ">U6"), np.array([b"a", b"word"])])
def test_npy_of_strings(tbx: Tbx, tmp_path: Path, words: np.ndarray) -> None:
    info = helper.make_tensor_value_info
    path = save(tmp_path / "m.onnx", [helper.make_node("Identity", ["x"], ["y"])], [info("x", TensorProto.STRING, ["n"])],
                [info("y", TensorProto.STRING, ["n"])])
    np.save(tmp_path / "x.npy", words)
    got = tbx("run", path, "--json", "--input", f"x={tmp_path / 'x.npy'}").json["outputs"][0]["first"]
    assert got == words.astype(str).tolist()


@pytest.mark.parametrize(("x", "message"), [
    (np.zeros(2, [("a", "<f4")]), "the elements are of a structured type"),
    (np.array(["a", None], object), "an array of Python objects; strings are saved with a dtype such as '<U8'"),
    (np.array(["2020-01-01"], "M8[D]"), "element type '<M8[D]' is none of ONNX's"),
])
def test_npy_that_is_no_tensor(tbx: Tbx, model: Path, tmp_path: Path, x: np.ndarray, message: str) -> None:
    np.save(tmp_path / "x.npy", x)
    done = tbx("run", model, "--no-compile", "--input", f"x={tmp_path / 'x.npy'}")
    assert (done.code, done.out) == (2, "") and message in done.err and done.err.count("\n") == 1


def test_a_size_that_contradicts_a_file(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", FEED)
    given = ("--no-compile", "--input", f"x={tmp_path / 'x.npy'}", "--dim")
    assert tbx("run", model, *given, "batch=2").code == 0
    done = tbx("run", model, *given, "batch=3")
    assert done.code == 2 and "x.npy has 2 there (dimension 0 of 'x')" in done.err


def test_kernels_of_a_user_without_a_home_go_to_the_temporary_folder(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no compiler")
    nowhere = {"TBX_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/proc/nowhere", "TMPDIR": str(tmp_path)}
    assert tbx("run", model, environment=nowhere).code == 0
    assert list((tmp_path / f"tensorbox-{os.getuid()}").glob("*.so"))
    done = tbx("run", model, environment=nowhere | {"TBX_CACHE_DIR": "/proc/nowhere"})
    assert done.code == 0 and f"kernels are kept in {tmp_path}" in done.err, "a folder that cannot be used is said"


def test_declared_inputs(tbx: Callable[..., Result], tmp_path: Path) -> None:
    """An input with an initializer is a constant; one of any rank is not shown as a scalar."""
    info = helper.make_tensor_value_info
    m = save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", "w"], ["y"])],
             [info("x", TensorProto.FLOAT, None), info("w", TensorProto.FLOAT, [2])],
             [info("y", TensorProto.FLOAT, None)], {"w": np.array([2, 3], np.float32)})
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    done = tbx("run", m, "--no-compile", "--input", f"x={tmp_path}/x.npy")
    assert done.code == 0 and "any rank" not in done.err
    done = tbx("run", m, "--no-compile")
    assert done.code == 0 and "note: input 'x' is float32[...], of any rank: where no --input x=..." in done.err
    done = tbx("run", m, "--no-compile", "--input", f"w={tmp_path}/x.npy")
    assert done.code == 2 and "'w' is an input of the model that has an initializer" in done.err
    (tmp_path / "x.png").write_bytes(b"")
    done = tbx("run", m, "--no-compile", "--input", f"x={tmp_path}/x.png")
    assert done.code == 2 and "'x' has a rank that the model leaves open" in done.err


def test_state_stays_in_the_session(tbx: Tbx, tmp_path: Path) -> None:
    """bench begins again where the room ends; what cannot be kept is said."""
    value = helper.make_tensor_value_info
    file = save(tmp_path / "sums.onnx", [helper.make_node("Concat", ["rows", "x"], ["longer"], axis=0),
                                         helper.make_node("ReduceMax", ["longer"], ["y"], keepdims=0, axes=[0])],
                [value("x", TensorProto.FLOAT, [2, 3]), value("rows", TensorProto.FLOAT, ["past", 3])],
                [value("y", TensorProto.FLOAT, [3]), value("longer", TensorProto.FLOAT, ["all", 3])])
    keep = ("--no-compile", "--state", "rows=longer", "--state-capacity", "7")
    done = tbx("run", file, *keep, "--json")
    assert done.code == 0 and [o["name"] for o in done.json["outputs"]] == ["y"], done.err
    done = tbx("bench", file, *keep, "--repeat", "9", "--json")
    assert done.code == 0 and done.json["runs"] == 9, done.err
    assert "room for 1" in tbx("run", file, *keep[:-1], "1").err
    done = tbx("run", file, "--state", "rows", "--state-capacity", "7")
    assert done.code == 2 and "--state: expected name=value" in done.err
    for room in ((), ("--state-limit", "7"), ("--state-capacity", "1", "--state-limit", "7")):
        done = tbx("bench", file, *keep[:3], *room, "--repeat", "9", "--json")
        assert done.code == 0 and done.json["runs"] == 9, done.err
        assert tbx("compile", file, *keep[:3], *room, "-o", tmp_path / "sums.tbx").code == 0
        assert tbx("run", tmp_path / "sums.tbx", "--no-compile").code == 0
    assert "limit is 1 (option state_limit)" in tbx("run", file, *keep[:3], "--state-limit", "1").err
    assert "without the option state" in tbx("run", file, "--state-limit", "1").err
    assert "--state-limit" in tbx("explain", "--help").out
