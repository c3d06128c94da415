"""As many cases of the sweep as four minutes take (some 2,000 on two cores), every day those of another of the seeds that
`report.md` lists as run to their end. The seed is printed; TBX_SWEEP_SEED sets it."""
import datetime
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

tensorbox = pytest.importorskip("tensorbox")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sweep import arbiter, cases, judge, scale, tolerance  # noqa: E402

HERE = Path(__file__).resolve().parent
SEEDS = (1, 2, 3, 5, 6)
SEED = int(os.environ.get("TBX_SWEEP_SEED") or SEEDS[datetime.date.today().toordinal() % len(SEEDS)])
SERIES = cases.Series(SEED)
OF_THIS_CPU = [] if "avx512f" in Path("/proc/cpuinfo").read_text() else ["--filter", " (avx2|sse)/"]


@pytest.mark.timeout(400)
def test_sweep(tmp_path):
    command = [sys.executable, str(HERE / "run_sweep.py"), "--seed", str(SEED), "--count", "4000", "--seconds", "230",
               "--processes", "2", "--part", "20", "--out", str(tmp_path), *OF_THIS_CPU]
    print("seed", SEED)
    done = subprocess.run(command, capture_output=True, text=True)
    again = f"python tests/sweep/run_sweep.py --seed {SEED} --first NUMBER --count 1"
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\none case again: {again}"


def test_memory_ends_where_it_ends(tmp_path):
    """A byte behind a block ends the process, and the last one of it does not."""
    from sweep import run_sweep
    env = dict(os.environ, LD_PRELOAD=str(run_sweep.guarded_memory(tmp_path)))
    code = """
import ctypes, sys
c = ctypes.CDLL(None)
c.malloc.restype = c.realloc.restype = ctypes.c_void_p
c.realloc.argtypes, c.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t], [ctypes.c_void_p]
for size in range(2048, 9000, 64):
    at = c.realloc(c.malloc(100), size)
    ctypes.memset(at, 1, size)
    at = c.realloc(at, size + 64)
    assert ctypes.string_at(at, size) == bytes([1]) * size
    c.free(at)
at = c.malloc(4096)
ctypes.memset(at, 0, 4096 + int(sys.argv[1]))
"""
    for behind, status in ((0, 0), (1, -11)):
        assert subprocess.run([sys.executable, "-c", code, str(behind)], env=env).returncode == status


@pytest.mark.timeout(400)
@pytest.mark.parametrize("family, kind", [("conv_padded", ""), ("conv_padded", "bf16"), ("conv_transpose_padded", "bf16"), ("conv", "bf16"),
                                          ("qlinear", ""), ("matmul", "bf16")])
def test_no_kernel_leaves_its_memory(tmp_path, family, kind):
    """Those that the library makes at run time, too, which no sanitizer watches."""
    command = [sys.executable, str(HERE / "run_sweep.py"), "--seed", str(SEED), "--family", family, "--count", "48",
               "--seconds", "60", "--guarded", "--out", str(tmp_path), *(["--kind", kind] if kind else []), *OF_THIS_CPU]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_equal_numbers_give_equal_cases():
    for number in range(40):
        a, b = cases.make(SERIES, number), cases.make(SERIES, number)
        assert a.builder.model() == b.builder.model()
        for run in range(a.builder.runs):
            first, second = a.builder.feeds(run), b.builder.feeds(run)
            assert all(np.array_equal(first[k], second[k]) for k in first)


def test_every_family_makes_valid_models():
    onnx = pytest.importorskip("onnx")
    seen = set()
    for number in range(300):
        family = cases.plan(SERIES, number)[0]
        if family in seen:
            continue
        seen.add(family)
        onnx.checker.check_model(cases.make(SERIES, number).builder.model())
    assert len(seen) > 15
    for family in (name for name, (often, _) in cases.FAMILIES.items() if not often):
        for number in range(8):
            onnx.checker.check_model(cases.make(cases.Series(SEED, family), number).builder.model())


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_the_bound_lets_rounding_pass_and_nothing_else(dtype):
    """Sums of n random products: an error of rounding passes, a term left out does not."""
    rng = np.random.default_rng(3)
    n = 256
    bound = tolerance.Bound(dtype, n, 1, 1.0, "", False)
    a, b = rng.standard_normal((64, n)), rng.standard_normal((n, 64)) / n ** 0.5
    want = a @ b
    size = scale.Size(*2 * [float(np.abs(a).max())])
    storage = {"f32": np.float32, "f64": np.float64, "f16": np.float16}.get(dtype)
    if storage is None:
        import ml_dtypes
        storage = ml_dtypes.bfloat16
    rounded = want.astype(storage)
    assert tolerance.difference(rounded, want.astype(storage), bound, size) == ""
    if dtype == "f32":
        sequential = np.zeros((64, 64), np.float32)
        for k in range(n):
            sequential += np.outer(a[:, k].astype(np.float32), b[k].astype(np.float32))
        assert tolerance.difference(sequential, want.astype(np.float32), bound, size) == ""
    short = (a[:, 1:] @ b[1:]).astype(storage)
    assert tolerance.difference(short, want.astype(storage), bound, size) != ""


def _others(want: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs that no one may take for this one: those that differ from it by a fifth of its norm or more."""
    floats = want.dtype.kind not in "iub"
    wide = want.astype(np.float64 if floats else np.int64)
    size = float(np.sqrt(np.mean(np.square(wide, where=np.isfinite(wide), out=np.zeros(wide.shape)))))
    flat = wide.reshape(-1)
    found = {"zeros": np.zeros_like(wide), "reversed": flat[::-1], "a place on": np.roll(flat, 1),
             "shifted": wide + (size / 4 if floats else np.int64(2)), "too large": wide * 1.3 if floats else wide + 3}
    found = {how: values.reshape(want.shape) for how, values in found.items()}
    return {how: values.astype(want.dtype) for how, values in found.items()
            if np.linalg.norm(np.where(np.isfinite(wide), values - wide, 0)) > size / 5 * want.size ** 0.5}


@pytest.mark.parametrize("kind", ["compiled", "bf16"])
@pytest.mark.parametrize("family", cases.FAMILIES)
def test_no_other_output_passes(family, kind):
    """Neither zeros nor the right values at wrong places nor values that are all off, in any family, type and precision."""
    series, seen, judged = cases.Series(SEED, family, kind), set(), 0
    for number in range(0, 60 * len(cases.LANES), len(cases.LANES)):  # of the lane that multiplies bfloat16
        _, dtype, _ = cases.plan(series, number)
        if dtype in seen:
            continue
        case = cases.make(series, number)
        b, bound = case.builder, judge.bound_of(case)
        model = b.model()
        feeds = b.feeds(0)
        try:
            values = tensorbox.Session(model, reference=True, threads=1, every_value=True,
                                       disable_passes=tensorbox.pass_names()).run(feeds)
        except tensorbox.Error:
            continue
        sizes = scale.scales(model.graph, values | feeds)
        for name in (o.name for o in b.outputs):
            want = values[name]
            if want.size < 16 or want.dtype == np.bool_:
                continue
            assert tolerance.difference(want, want, bound, sizes[name]) == ""
            for how, other in _others(want).items():
                assert tolerance.difference(other, want, bound, sizes[name]), f"{number} {dtype} {name}: {how}"
                judged += 1
                seen.add(dtype)
        if len(seen) == len(cases.DTYPES[family]):
            break
    assert judged, f"seed {SEED}"


def test_products_of_many_rows_are_strict_where_float32_is_faster(monkeypatch):
    """One row may have narrow weights on every processor."""
    def product(rows):
        return onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17]> g (float[2, {rows}, 3] x, float[3, 4] w) => (float[2, {rows}, 4] y) {{ y = MatMul (x, w) }}')
    case = next(c for c in (cases.make(cases.Series(3, "gemm", "bf16"), n) for n in range(400))
                if c.dtype == "f32" and not c.mode.dynamic)
    for multiplies in (False, True):
        monkeypatch.setattr(judge, "_multiplies", lambda dtype, answer=multiplies: answer)
        monkeypatch.setattr(case.builder, "model", lambda: product(5))
        assert judge.bound_of(case).rounded == ("bf16" if multiplies else "")
        monkeypatch.setattr(case.builder, "model", lambda: onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[1, 3] x, float[3, 4] w) => (float[1, 4] y) { y = MatMul (x, w) }'))
        assert judge.bound_of(case).rounded == "bf16"


def test_integers_are_exact_in_every_precision():
    """Sums of int32 are no size that errors of their multiples count against, and no bfloat16 lies between them."""
    for number in range(0, 200 * len(cases.LANES), len(cases.LANES)):
        case = cases.make(cases.Series(3, "integer", "bf16"), number)
        assert not judge.bound_of(case).rounded
    case = next(c for c in (cases.make(cases.Series(3, "integer"), n) for n in range(100)) if c.builder.outputs[0].dtype == "f32")
    b = case.builder
    feeds = b.feeds(0)
    values = tensorbox.Session(b.model(), reference=True, every_value=True, disable_passes=tensorbox.pass_names()).run(feeds)
    name = b.outputs[0].name
    assert scale.scales(b.model().graph, values | feeds)[name].most < 3 * scale.largest(values[name])


def _settled(want_factor: float, other_factor: float, approximate: str = "none") -> tuple[str, str]:
    """Of a Gelu of a product in float32, whose right results the two get times a factor."""
    import onnx
    from onnx import helper

    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((4, 8), np.float32), rng.standard_normal((8, 3), np.float32)
    floats = onnx.TensorProto.FLOAT
    model = helper.make_model(helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Gelu", ["p"], ["y"], approximate=approximate)], "product",
        [helper.make_tensor_value_info("x", floats, [4, 8])], [helper.make_tensor_value_info("y", floats, [4, 3])],
        [helper.make_tensor("w", floats, [8, 3], w.ravel())]), opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    p = x.astype(np.float64) @ w
    inner = np.tanh(np.sqrt(2 / np.pi) * (p + 0.044715 * p ** 3)) if approximate == "tanh" else np.vectorize(math.erf)(p / np.sqrt(2))
    right = 0.5 * p * (1 + inner)
    bound = tolerance.Bound("f32", 8, 2, 1.0, "", False)
    size = scale.Size(*2 * [float(np.abs(right).max())])
    return arbiter.settle(
        model, {"x": x}, {"y": (right * want_factor).astype(np.float32)}, {"y": (right * other_factor).astype(np.float32)},
        lambda a, b: tolerance.difference(a["y"], b["y"], bound, size))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_others_say_who_is_right(approximate):
    verdict, who = _settled(1, 1.01, approximate)
    assert verdict == "disputed" and who
    assert _settled(1.01, 1, approximate) == ("wrong", "onnx.reference in float64")
    assert _settled(1.01, 0.99, approximate) == ("open", "")


def test_gelu_of_the_arbiter_has_exact_constants():
    x = np.linspace(-4, 4, 81)
    tanh = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) for v in x]
    erf = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    import onnx
    from onnx import helper
    for how, want in (("tanh", tanh), ("none", erf)):
        model = helper.make_model(helper.make_graph(
            [helper.make_node("Gelu", ["x"], ["y"], approximate=how)], "gelu",
            [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [81])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [81])]), opset_imports=[helper.make_opsetid("", 20)])
        found = dict(arbiter.opinions(model, {"x": x}))
        np.testing.assert_allclose(found["onnx.reference in float64"]["y"], want, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(tensorbox.Session(model, compile=False).run({"x": x})["y"], want, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("op, more", [("Gelu", {"approximate": "tanh"}), ("Gelu", {}), ("HardSwish", {})])
def test_onnxruntime_can_have_exact_constants(op, more):
    import onnx
    from onnx import helper
    x = np.linspace(-4, 4, 81)
    model = helper.make_model(helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], **more)], "one", [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [81])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [81])]), opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    found = dict(arbiter.opinions(model, {"x": x}))
    want = tensorbox.Session(model, reference=True).run({"x": x})["y"]
    for who in ("ONNX Runtime in float64, with exact constants", "onnx.reference in float64"):
        if who in found:  # ONNX Runtime has no Erf of float64
            np.testing.assert_allclose(found[who]["y"], want, rtol=1e-13, atol=1e-15)
    assert len([who for who in found if "exact" in who]) == (more != {} or op != "Gelu")


def test_norms_of_the_arbiter_compute_in_its_type():
    import onnx
    from onnx import helper
    x = np.random.default_rng(2).standard_normal((2, 4, 3))
    floats = onnx.TensorProto.DOUBLE
    model = helper.make_model(helper.make_graph(
        [helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)], "norm",
        [helper.make_tensor_value_info(n, floats, d) for n, d in (("x", [2, 4, 3]), ("s", [4]), ("b", [4]))],
        [helper.make_tensor_value_info("y", floats, [2, 4, 3])]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    groups = x.reshape(2, 2, 6)
    want = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + np.float32(1e-5))
    found = dict(arbiter.opinions(model, {"x": x, "s": np.ones(4), "b": np.zeros(4)}))
    np.testing.assert_allclose(found["onnx.reference in float64"]["y"].reshape(want.shape), want, rtol=1e-12, atol=1e-14)


def test_layer_norms_of_the_arbiter_compute_in_its_type():
    import onnx
    from onnx import helper
    rng = np.random.default_rng(2)
    x, scale, bias = rng.standard_normal((2, 3, 8)), rng.standard_normal(8), rng.standard_normal(8)
    floats = onnx.TensorProto.DOUBLE
    model = helper.make_model(helper.make_graph(
        [helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)], "norm",
        [helper.make_tensor_value_info(n, floats, d) for n, d in (("x", [2, 3, 8]), ("s", [8]), ("b", [8]))],
        [helper.make_tensor_value_info("y", floats, [2, 3, 8])]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5)) * scale + bias
    feeds = {"x": x, "s": scale, "b": bias}
    found = dict(arbiter.opinions(model, feeds))
    np.testing.assert_allclose(found["onnx.reference in float64"]["y"], want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(tensorbox.Session(model, reference=True).run(feeds)["y"], want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["QLinearConv", "ConvInteger"])
def test_integer_convolutions_of_the_arbiter_have_values_of_channels(op, rank):
    import itertools

    import onnx
    from onnx import helper, numpy_helper
    rng = np.random.default_rng(rank)
    groups, each, taps, extent, zero = 2, 3, 2, 4, 7
    channels = groups * each
    x = rng.integers(0, 256, (2, groups, *[extent] * rank)).astype(np.uint8)
    w = rng.integers(-127, 128, (channels, 1, *[taps] * rank)).astype(np.int8)
    zeros = rng.integers(-5, 5, channels).astype(np.int8)
    bias = rng.integers(-500, 500, channels).astype(np.int32)
    scales = (0.01 * (1 + rng.random(channels))).astype(np.float32)
    quantised = op == "QLinearConv"
    constants: dict[str, object] = {"w": w, "xz": np.uint8(91), "wz": zeros}
    if quantised:
        constants = {"xs": np.float32(0.02), "xz": np.uint8(91), "w": w, "ws": scales, "wz": zeros, "ys": np.float32(0.03),
                     "yz": np.uint8(zero), "b": bias}
    model = helper.make_model(helper.make_graph(
        [helper.make_node(op, ["x", *constants], ["y"], group=groups)], "conv",
        [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.UINT8 if quantised else onnx.TensorProto.INT32, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    want = np.zeros((2, channels, *[extent - taps + 1] * rank), np.int64)
    for n, m, *at in itertools.product(*map(range, want.shape)):
        window = tuple(slice(a, a + taps) for a in at)
        want[(n, m, *at)] = ((x[(n, m // each, *window)].astype(np.int64) - 91) * (w[m, 0].astype(np.int64) - zeros[m])).sum()
    if quantised:
        to_channels = (-1, *[1] * rank)
        factor = (0.02 * scales.astype(np.float64) / 0.03).reshape(to_channels)
        want = np.clip(np.rint((want + bias.reshape(to_channels)) * factor) + zero, 0, 255)
        assert len(np.unique(want)) > 16
    found = dict(arbiter.opinions(model, {"x": x}))["onnx.reference in float64"]["y"]
    assert found.shape == want.shape and np.abs(found - want).max() <= quantised and (found != want).mean() < 0.02
