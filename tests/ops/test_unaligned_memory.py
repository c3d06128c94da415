"""Memory of callers begins where they like, and pixels of an image with channels last lie as far apart as it has channels.

Instructions of SSE that compute with an operand in memory fault where its address is no multiple of 16 bytes, those of all
later sets do not: so the library is held to SSE4.1 and to AVX, which looks at its instruction set once. A process each."""
import os
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
tensorbox = pytest.importorskip("tensorbox")
from onnx import helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(8)


def unaligned(values: np.ndarray) -> np.ndarray:
    """The same, 4 bytes behind a multiple of 16."""
    memory = np.zeros(values.size + 8, values.dtype)
    at = next(i for i in range(8) if (memory.ctypes.data + i * values.itemsize) % 16 == 4)
    found = memory[at:at + values.size].reshape(values.shape)
    found[...] = values
    return found


def random(*shape: int) -> np.ndarray:
    return unaligned(RNG.standard_normal(shape).astype(np.float32))


def convolved(x: np.ndarray, w: np.ndarray, groups: int, stride: int) -> np.ndarray:
    """Sums in float64, without padding."""
    kernel, each = w.shape[2], w.shape[0] // groups
    rows, columns = ((extent - kernel) // stride + 1 for extent in x.shape[2:])
    y = np.zeros((x.shape[0], w.shape[0], rows, columns))
    for m in range(w.shape[0]):
        first = m // each * w.shape[1]
        for c in range(w.shape[1]):
            for i in range(kernel):
                for j in range(kernel):
                    taken = x[:, first + c, i:i + stride * (rows - 1) + 1:stride, j:j + stride * (columns - 1) + 1:stride]
                    y[:, m] += float(w[m, c, i, j]) * taken.astype(np.float64)
    return y


def check(channels: int, results: int, groups: int, kernel: int, stride: int) -> None:
    """Conv, with a bias and a residual of the caller and without, into memory of the caller."""
    x, w = random(2, channels, 9, 11), random(results, channels // groups, kernel, kernel)
    product = convolved(x, w, groups, stride)
    bias, residual = random(results), random(*product.shape)
    attributes = {"group": groups, "kernel_shape": [kernel] * 2, "strides": [stride] * 2}
    for has_bias in (False, True):
        for added in (False, True):
            feeds = {"x": x} | ({"b": bias} if has_bias else {}) | ({"r": residual} if added else {})
            nodes = [helper.make_node("Conv", ["x", "w", *(["b"] if has_bias else [])], ["c" if added else "y"], **attributes)]
            nodes += [helper.make_node("Add", ["c", "r"], ["y"])] if added else []
            model = helper.make_model(helper.make_graph(
                nodes, "unaligned", [helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, v.shape) for k, v in feeds.items()],
                [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, product.shape)], [numpy_helper.from_array(w, "w")]),
                opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
            want = product + (bias.reshape(-1, 1, 1) if has_bias else 0) + (residual if added else 0)
            for isa in ("sse", ""):
                y = unaligned(np.zeros(product.shape, np.float32))
                tensorbox.Session(model, threads=1, **({"isa": isa} if isa else {})).run(feeds, out={"y": y})
                np.testing.assert_allclose(y, want, rtol=2e-4, atol=2e-4)


CASES = [(33, 33, 33, 2, 3), (7, 7, 7, 3, 1), (32, 32, 32, 3, 1), (40, 24, 1, 1, 1), (264, 16, 1, 1, 1), (16, 24, 1, 3, 1), (12, 10, 2, 3, 2)]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "x".join(map(str, c)))
@pytest.mark.parametrize("isa", ["SSE41", "AVX", "DEFAULT"])
def test_convolutions_into_memory_of_callers(isa: str, case: tuple[int, ...]) -> None:
    code = f"import test_unaligned_memory; test_unaligned_memory.check{case}"
    here = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *sys.path])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "DNNL_MAX_CPU_ISA": isa, "PYTHONPATH": here})


@pytest.mark.parametrize("isa", ["sse", "avx2", "avx512"])
def test_generated_kernels_with_memory_of_callers(isa: str) -> None:
    x, z = random(5, 37), random(5, 37)
    nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("Mul", ["s", "z"], ["m"]), helper.make_node("Tanh", ["m"], ["y"]),
             helper.make_node("Transpose", ["y"], ["t"]), helper.make_node("ReduceSum", ["x"], ["r"])]
    shapes = {"y": (5, 37), "t": (37, 5), "r": (1, 1)}
    model = helper.make_model(helper.make_graph(
        nodes, "unaligned", [helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, (5, 37)) for k in "xz"],
        [helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, v) for k, v in shapes.items()]),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    want = np.tanh(e / e.sum(1, keepdims=True) * z)
    try:
        session = tensorbox.Session(model, isa=isa)
    except tensorbox.Error as error:
        pytest.skip(str(error))  # this CPU does not run it
    out = {k: unaligned(np.zeros(v, np.float32)) for k, v in shapes.items()}
    session.run({"x": x, "z": z}, out=out)
    np.testing.assert_allclose(out["y"], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out["t"], want.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out["r"], wide.sum().reshape(1, 1), rtol=1e-5, atol=1e-5)
