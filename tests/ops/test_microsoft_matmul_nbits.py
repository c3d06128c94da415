"""MatMulNBits, MatMulBnb4, MatMulFpQ4, SparseToDenseMatMul and GatherBlockQuantized against ONNX Runtime, or against numpy where it computes otherwise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import CPU_FLAGS, compare, expected, model_of, tensorbox

TYPES = {"float32": (np.float32, 1e-4), "float16": (np.float16, 4e-3)}


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """Integers [..., n] as bytes [..., ceil(n * bits / 8)], the first of a byte in its lowest bits."""
    per = 8 // bits
    values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % per)])
    parts = values.reshape(*values.shape[:-1], -1, per).astype(np.uint8)
    return np.bitwise_or.reduce(parts << (np.arange(per, dtype=np.uint8) * bits), axis=-1)


def matrix(rng: np.random.Generator, k: int, n: int, bits: int, block: int, zeros: str,
           dtype: type) -> tuple[dict[str, np.ndarray | None], np.ndarray]:
    """Inputs 1 to 3 of a random matrix, and its values [k, n] as f32."""
    blocks = -(-k // block)
    q = rng.integers(0, 1 << bits, (n, blocks * block))
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(dtype)
    points = np.full((n, blocks), 1 << (bits - 1), np.float32)
    given = None
    if zeros == "packed":
        points = rng.integers(0, 1 << bits, (n, blocks)).astype(np.float32)
        given = pack(points.astype(np.uint8), bits)
    elif zeros == "float":
        given = rng.uniform(0, (1 << bits) - 1, (n, blocks)).astype(dtype)
        points = given.astype(np.float32)
    w = (q.reshape(n, blocks, block) - points[..., None]) * scales[..., None].astype(np.float32)
    packed = pack(q, bits).reshape(n, blocks, block * bits // 8)
    return {"B": packed, "scales": scales, "zeros": given}, w.reshape(n, -1)[:, :k].T


CASES = [(bits, block, zeros) for bits in (2, 4, 8) for block in (16, 32, 128) for zeros in ("none", "packed", "float")]


@pytest.mark.parametrize("bits,block,zeros", CASES)
@pytest.mark.parametrize("dtype", TYPES)
def test_matmul_nbits(bits: int, block: int, zeros: str, dtype: str) -> None:
    rng = np.random.default_rng(bits * block)
    element, tolerance = TYPES[dtype]
    for rows, k, n in [((1,), 64, 48), ((3,), 70, 33), ((2, 5), 256, 96), ((40,), 130, 130), ((1, 1), 16, 1)]:
        weights, w = matrix(rng, k, n, bits, block, zeros, element)
        a = rng.standard_normal((*rows, k)).astype(element)
        bias = rng.standard_normal(n).astype(element) if n % 2 else None
        inputs = {"A": a, **weights, "g_idx": None, "bias": bias}
        want = a.astype(np.float32) @ w + (0 if bias is None else bias.astype(np.float32))
        for constants in (["B", "scales", "zeros", "bias"], []):
            model = model_of("MatMulNBits", inputs, ["Y"], 17, constants, domain="com.microsoft", K=k, N=n, bits=bits,
                             block_size=block)
            compare(model, inputs, rtol=tolerance, atol=tolerance * 10, want=[want.astype(element)])


@pytest.mark.parametrize("bits,zeros", [(4, "none"), (4, "packed"), (4, "float"), (8, "none"), (8, "packed"),
                                        (2, "none")])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 9, 33])
def test_matmul_nbits_against_onnxruntime(bits: int, zeros: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    weights, _ = matrix(rng, 160, 72, bits, 32, zeros, np.float32)
    inputs = {"A": rng.standard_normal((rows, 160)).astype(np.float32), **weights}
    for level in (0, 1, 2, 3):  # how exact the product has to be at least: ours is exact
        model = model_of("MatMulNBits", inputs, ["Y"], 17, ["B", "scales", "zeros"], domain="com.microsoft", K=160,
                         N=72, bits=bits, block_size=32, accuracy_level=level)
        exact = model_of("MatMulNBits", inputs, ["Y"], 17, ["B", "scales", "zeros"], domain="com.microsoft", K=160,
                         N=72, bits=bits, block_size=32, accuracy_level=1)
        compare(model, inputs, rtol=1e-4, atol=1e-3, want=expected(exact, {"A": inputs["A"]}, "ort"))


def rounded(a: np.ndarray, block: int) -> np.ndarray:
    """Activations as accuracy_level 4 takes them: by blocks in steps of the greatest over 127."""
    k = a.shape[-1]
    blocks = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -k % block)]).reshape(*a.shape[:-1], -1, block)
    most = np.abs(blocks).max(-1, keepdims=True)
    q = np.rint(blocks * np.divide(np.float32(127), most, where=most > 0, out=np.zeros_like(most)))
    return (q * (most / np.float32(127))).reshape(*a.shape[:-1], -1)[..., :k]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 9, 33])
def test_matmul_nbits_rounded_activations(bits: int, block: int, zeros: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    weights, w = matrix(rng, 200, 72, bits, block, zeros, np.float32)
    a = rng.standard_normal((rows, 200)).astype(np.float32)
    a[-1, :32] = 0
    inputs = {"A": a, **weights}
    model = model_of("MatMulNBits", inputs, ["Y"], 17, ["B", "scales", "zeros"], domain="com.microsoft", K=200, N=72,
                     bits=bits, block_size=block, accuracy_level=4)
    compare(model, inputs, rtol=1e-4, atol=1e-3, want=[rounded(a, block) @ w])
    if bits == 4 and zeros != "float":
        compare(model, inputs, rtol=1e-4, atol=1e-3, want=expected(model, {"A": a}, "ort"))


def test_matmul_nbits_of_few_columns_and_many_rows() -> None:
    """Threads share the rows where there are less panels of columns than threads."""
    rng = np.random.default_rng(7)
    for n in (1, 60, 130):
        weights, w = matrix(rng, 640, n, 4, 32, "none", np.float32)
        a = rng.standard_normal((1001, 640)).astype(np.float32)
        model = model_of("MatMulNBits", {"A": a, **weights}, ["Y"], 17, ["B", "scales", "zeros"], domain="com.microsoft", K=640,
                         N=n, bits=4, block_size=32, accuracy_level=4)
        want = rounded(a, 32).astype(np.float64) @ w.astype(np.float64)
        for threads in (1, 2, 3, 8):
            session = tensorbox.Session(model.SerializeToString(), threads=threads)
            with ThreadPoolExecutor(4) as pool:  # as many callers
                for y in pool.map(lambda _, session=session, a=a: session.run({"A": a})["Y"], range(8)):
                    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits,zeros", [(2, "none"), (4, "packed"), (8, "float")])
@pytest.mark.parametrize("rows", [17, 20, 21, 100, 131])
@pytest.mark.parametrize("level", [0, 4])
def test_matmul_nbits_of_real_layers(bits: int, zeros: str, rows: int, level: int) -> None:
    """A prompt, or some sequences at once; a row of infinities, which cannot be bytes, changes no other one."""
    rng = np.random.default_rng(rows)
    weights, w = matrix(rng, 1500, 520, bits, 32, zeros, np.float32)
    a = rng.standard_normal((rows, 1500)).astype(np.float32)
    model = model_of("MatMulNBits", {"A": a, **weights}, ["Y"], 17, ["B", "scales", "zeros"], domain="com.microsoft", K=1500,
                     N=520, bits=bits, block_size=32, accuracy_level=level)
    taken = rounded(a, 32) if level == 4 else a
    exact = taken.astype(np.float64) @ w.astype(np.float64)
    bound = 1e-6 * (np.abs(taken).astype(np.float64) @ np.abs(w).astype(np.float64)).max()
    compare(model, {"A": a, **weights}, rtol=1e-5, atol=bound, want=[exact.astype(np.float32)])
    a[rows // 2, 3] = np.inf
    others = np.arange(rows) != rows // 2
    for compiled in (True, False):
        y = tensorbox.Session(model.SerializeToString(), compile=compiled).run({"A": a})["Y"]
        np.testing.assert_allclose(y[others], exact[others], rtol=1e-5, atol=bound)
        assert not np.isfinite(y[~others]).all()


@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize("constant", [True, False])
def test_matmul_nbits_groups(zeros: str, constant: bool) -> None:
    rng = np.random.default_rng(0)
    k, n, block = 64, 40, 16
    weights, _ = matrix(rng, k, n, 4, block, zeros, np.float32)
    inputs = {"A": rng.standard_normal((5, k)).astype(np.float32), **weights}
    for groups in (np.arange(k) // block, rng.integers(0, k // block, k)):
        inputs["g_idx"] = groups.astype(np.int32)
        names = [name for name in inputs if name != "A"] if constant else []
        model = model_of("MatMulNBits", inputs, ["Y"], 17, names, domain="com.microsoft", K=k, N=n, bits=4,
                         block_size=block)
        q = weights["B"].reshape(n, -1)
        q = np.stack([q & 15, q >> 4], -1).reshape(n, k).astype(np.float32)
        z = np.full((n, k // block), 8, np.float32)
        if zeros == "packed":
            z = np.stack([weights["zeros"] & 15, weights["zeros"] >> 4], -1).reshape(n, -1)[:, :k // block]
        w = (q - z[:, groups]) * weights["scales"][:, groups]
        compare(model, inputs, rtol=1e-4, atol=1e-4, want=[inputs["A"] @ w.T])


@pytest.mark.parametrize("constant", [True, False])
def test_matmul_nbits_groups_of_whole_blocks(constant: bool) -> None:
    """ONNX Runtime takes groups for the rows that fill the last block, too."""
    rng = np.random.default_rng(3)
    k, n, block = 40, 24, 16
    blocks = -(-k // block)
    weights, _ = matrix(rng, k, n, 4, block, "none", np.float32)
    inputs = {"A": rng.standard_normal((5, k)).astype(np.float32), **weights}
    q = weights["B"].reshape(n, -1)
    q = np.stack([q & 15, q >> 4], -1).reshape(n, -1)[:, :k].astype(np.float32)
    for groups in (np.arange(blocks * block) // block, rng.integers(0, blocks, blocks * block)):
        inputs["g_idx"] = groups.astype(np.int32)
        names = [name for name in inputs if name != "A"] if constant else []
        model = model_of("MatMulNBits", inputs, ["Y"], 17, names, domain="com.microsoft", K=k, N=n, bits=4, block_size=block)
        w = (q - 8) * weights["scales"][:, groups[:k]]
        compare(model, inputs, rtol=1e-4, atol=1e-4, want=[inputs["A"] @ w.T])


def test_matmul_nbits_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(1)
    weights, w = matrix(rng, 96, 64, 4, 32, "packed", ml_dtypes.bfloat16)
    a = rng.standard_normal((4, 96)).astype(ml_dtypes.bfloat16)
    inputs = {"A": a, **weights}
    model = model_of("MatMulNBits", inputs, ["Y"], 17, ["B", "scales", "zeros"], domain="com.microsoft", K=96, N=64,
                     bits=4, block_size=32)
    compare(model, inputs, rtol=1e-2, atol=2e-2, want=[(a.astype(np.float32) @ w).astype(ml_dtypes.bfloat16)])


@pytest.mark.parametrize("isa", ["sse", "avx2"])
def test_matmul_nbits_compiled(isa: str) -> None:
    rng = np.random.default_rng(2)
    weights, w = matrix(rng, 256, 300, 4, 32, "none", np.float32)
    a = rng.standard_normal((1, 256)).astype(np.float32)
    inputs = {"A": a, **weights}
    model = model_of("MatMulNBits", inputs, ["Y"], 17, ["B", "scales"], domain="com.microsoft", K=256, N=300, bits=4,
                     block_size=32)
    got = tensorbox.Session(model, isa=isa).run({"A": a})["Y"]
    np.testing.assert_allclose(got, a @ w, 1e-4, 1e-4)


@pytest.mark.parametrize("attributes,message", [
    ({"K": 64, "N": 0}, "N is 0"), ({"K": 64, "N": 16, "bits": 3}, "bits is 3"),
    ({"K": 64, "N": 16, "block_size": 24}, "block_size is 24"), ({"K": 32, "N": 16}, "A has 64 columns"),
    ({"K": 64, "N": 17}, "B has 512 elements"), ({"K": 64, "N": 16, "weight_prepacked": 1}, "weight_prepacked")])
def test_matmul_nbits_refuses(attributes: dict[str, int], message: str) -> None:
    inputs = {"A": np.zeros((2, 64), np.float32), "B": np.zeros((16, 2, 16), np.uint8),
              "scales": np.zeros((16, 2), np.float32)}
    model = model_of("MatMulNBits", inputs, ["Y"], 17, ["B", "scales"], domain="com.microsoft",
                     **{"block_size": 32, "bits": 4, **attributes})
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(model, compile=False)


def test_matmul_nbits_empty() -> None:
    inputs = {"A": np.zeros((0, 64), np.float32), "B": np.zeros((16, 2, 16), np.uint8),
              "scales": np.zeros((16, 2), np.float32)}
    model = model_of("MatMulNBits", inputs, ["Y"], 17, ["B", "scales"], domain="com.microsoft", K=64, N=16,
                     block_size=32, bits=4)
    compare(model, inputs, want=[np.zeros((0, 16), np.float32)])


# --- MatMulFpQ4


@pytest.mark.parametrize("zeros", [0, 1])
def test_matmul_fpq4(zeros: int) -> None:
    rng = np.random.default_rng(8)
    for rows, k, n in (((2, 3), 64, 5), ((4,), 70, 8), ((), 32, 1), ((0,), 200, 3)):
        blocks = -(-k // 32)
        scales = rng.uniform(0.1, 1, (n, blocks, 1)).astype(np.float32)
        points = rng.integers(0, 16, (n, blocks, 1)).astype(np.uint8) if zeros else np.full((n, blocks, 1), 8, np.uint8)
        q = rng.integers(0, 16, (n, blocks, 32)).astype(np.uint8)
        parts = [scales.view(np.uint8), *([points] if zeros else []), q[..., :16] | q[..., 16:] << 4]
        w = ((q.astype(np.float32) - points) * scales).reshape(n, -1)[:, :k].T
        inputs = {"A": rng.standard_normal((*rows, k)).astype(np.float32), "B": np.concatenate(parts, -1).ravel(),
                  "B_shape": np.array([k, n], np.int64)}
        for constants in (["B", "B_shape"], []):
            model = model_of("MatMulFpQ4", inputs, ["Y"], 17, constants, domain="com.microsoft", blk_quant_type=zeros)
            compare(model, inputs, rtol=1e-4, atol=1e-4, want=[inputs["A"] @ w])
            if rows and rows[0] and constants:
                compare(model, inputs, rtol=1e-4, atol=1e-4, want=of_onnxruntime(model, {"A": inputs["A"]}) or [inputs["A"] @ w])


def of_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """None where it is not there, or has no such kernel for this CPU: it has none without AVX-512."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return None
    return expected(model, feeds, "ort") if "avx512f" in CPU_FLAGS else None


@pytest.mark.parametrize("kind,shape,message", [(2, (32, 5), "blk_quant_type 2"), (3, (32, 5), "blk_quant_type is 3"),
                                                (0, (64, 5), "B has 100 bytes"), (0, (0, 5), "B_shape"), (0, (20, 5), "A has 32 columns")])
def test_matmul_fpq4_refuses(kind: int, shape: tuple[int, int], message: str) -> None:
    inputs = {"A": np.zeros((2, 32), np.float32), "B": np.zeros(100, np.uint8), "B_shape": np.array(shape, np.int64)}
    model = model_of("MatMulFpQ4", inputs, ["Y"], 17, ["B", "B_shape"], domain="com.microsoft", blk_quant_type=kind)
    with pytest.raises(tensorbox.Error, match=message):
        tensorbox.Session(model, compile=False)


# --- SparseToDenseMatMul


def sparse_model(a: np.ndarray, b: np.ndarray, **attributes: float) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(a.dtype)
    places = np.flatnonzero(a)
    values = helper.make_tensor("A", kind, [len(places)], a.ravel()[places].tolist())
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("places", onnx.TensorProto.INT64, [len(places)], places.tolist()), a.shape)
    graph = helper.make_graph([helper.make_node("SparseToDenseMatMul", ["A", "B"], ["Y"], domain="com.microsoft", **attributes)], "sparse",
                              [helper.make_tensor_value_info("B", kind, b.shape)], [helper.make_tensor_value_info("Y", kind, None)],
                              sparse_initializer=[sparse])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("trans_a,trans_b", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_sparse_to_dense_matmul(kind: str, trans_a: int, trans_b: int) -> None:
    rng = np.random.default_rng(9)
    for batch in ((), (3,)):
        a = (rng.integers(0, 9, (4, 5)) * (rng.random((4, 5)) < 0.4)).astype(kind)
        b = rng.integers(0, 9, (*batch, 5, 6)).astype(kind)
        shown_a, shown_b = a.T if trans_a else a, np.ascontiguousarray(np.swapaxes(b, -1, -2)) if trans_b else b
        model = sparse_model(shown_a, shown_b, transA=trans_a, transB=trans_b, alpha=2.0)
        compare(model, {"B": shown_b}, want=[2 * (a @ b)])


def test_sparse_to_dense_matmul_refuses() -> None:
    model = sparse_model(np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    with pytest.raises(tensorbox.ModelError, match="A and B have ranks 2 and 1"):
        tensorbox.Session(model, compile=False)


# --- GatherBlockQuantized


def tensor(name: str, values: np.ndarray, dtype: int) -> onnx.TensorProto:
    return helper.make_tensor(name, dtype, values.shape, values.ravel().tolist())


@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize("gather_axis,quantize_axis", [(0, 1), (0, 2), (1, 2), (2, 0), (1, 1), (-1, -2)])
@pytest.mark.parametrize("zeros", [True, False])
def test_gather_block_quantized(kind: str, gather_axis: int, quantize_axis: int, zeros: bool) -> None:
    rng = np.random.default_rng(3)
    onnx_type = onnx.TensorProto.INT4 if kind == "int4" else onnx.TensorProto.UINT4
    low, high = (-8, 8) if kind == "int4" else (0, 16)
    shape = [3, 40, 36]
    blocks = list(shape)
    blocks[quantize_axis] = -(-shape[quantize_axis] // 16)
    indices = np.array([[2, 0], [-1, 1], [-3, 0]], np.int64)
    scales = rng.uniform(0.1, 1, blocks).astype(np.float32)
    names = ["data", "indices", "scales"] + (["zeros"] if zeros else [])
    node = helper.make_node("GatherBlockQuantized", names, ["Y"], domain="com.microsoft", gather_axis=gather_axis,
                            quantize_axis=quantize_axis, block_size=16)
    initializers = [tensor("data", rng.integers(low, high, shape), onnx_type)]
    if zeros:
        initializers.append(tensor("zeros", rng.integers(low, high, blocks), onnx_type))
    graph = helper.make_graph([node], "gather", [
        helper.make_tensor_value_info("indices", onnx.TensorProto.INT64, indices.shape),
        helper.make_tensor_value_info("scales", onnx.TensorProto.FLOAT, scales.shape)],
        [helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, None)], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21),
                                                    helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    compare(model, {"indices": indices, "scales": scales}, engine="ort")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gather_block_quantized_bytes(bits: int, zeros: bool, dtype: type) -> None:
    rng = np.random.default_rng(bits)
    shape, block = (20, 2, 48), 16
    q = rng.integers(0, 1 << bits, shape)
    scales = rng.uniform(0.1, 1, (20, 2, 3)).astype(dtype)
    points = rng.integers(0, 1 << bits, scales.shape) if zeros else np.full(scales.shape, 1 << (bits - 1))
    inputs = {"data": pack(q, bits), "indices": np.array([3, 19, 0, -1, -20], np.int32), "scales": scales,
              "zeros": pack(points, bits) if zeros else None}
    model = model_of("GatherBlockQuantized", inputs, ["Y"], 21, ["data"], domain="com.microsoft", bits=bits,
                     block_size=block, gather_axis=0, quantize_axis=2)
    model.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    want = (q - np.repeat(points, block, -1)) * np.repeat(scales, block, -1).astype(np.float32)
    compare(model, inputs, rtol=1e-3 if dtype == np.float16 else 1e-6, want=[want[inputs["indices"]].astype(dtype)])
    if bits > 2:
        compare(model, inputs, rtol=1e-3 if dtype == np.float16 else 1e-6, engine="ort")


def test_gather_block_quantized_outside() -> None:
    inputs = {"data": np.full((4, 16), 3, np.uint8), "indices": np.array([1, 4, -5, 100, -4], np.int64),
              "scales": np.ones((4, 1), np.float32)}
    model = model_of("GatherBlockQuantized", inputs, ["Y"], 21, ["data"], domain="com.microsoft", bits=8,
                     block_size=16)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    want = np.full((5, 16), -125, np.float32)
    want[1:4] = 0
    compare(model, inputs, want=[want])


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("block", [16, 64])
def test_matmul_bnb4(kind: int, block: int) -> None:
    rng = np.random.default_rng(block + kind)
    for rows, k, n in [((1,), 64, 48), ((3,), 70, 33), ((2, 5), 128, 9), ((0, 2), 5, 3), ((7,), 3, 3)]:
        inputs = {"A": rng.standard_normal((*rows, k)).astype(np.float32),
                  "B": rng.integers(0, 256, (n * k + 1) // 2).astype(np.uint8),
                  "absmax": rng.uniform(0.1, 1, -(-n * k // block)).astype(np.float32)}
        for constants in (["B", "absmax"], []):
            model = model_of("MatMulBnb4", inputs, ["Y"], 17, constants, domain="com.microsoft", K=k, N=n, block_size=block,
                             quant_type=kind)
            compare(model, inputs, engine="ort")


@pytest.mark.parametrize("shape,attributes,message", [
    ((16,), {"quant_type": 2}, "quant_type is 2"), ((16,), {"block_size": 24}, "block_size is 24"),
    ((15,), {}, "B has 15 elements, expected 16"), ((16,), {"K": 1 << 62}, "K is")])
def test_matmul_bnb4_refuses(shape: tuple[int, ...], attributes: dict[str, int], message: str) -> None:
    inputs = {"A": np.zeros((2, 8), np.float32), "B": np.zeros(shape, np.uint8), "absmax": np.ones(2, np.float32)}
    attributes = {"K": 8, "N": 4, "block_size": 16, "quant_type": 1} | attributes
    model = model_of("MatMulBnb4", inputs, ["Y"], 17, domain="com.microsoft", **attributes)
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(model, compile=False)


def test_unknown_operator_beside_attention() -> None:
    """The error names the operator that is not there, not what a pass made of its neighbours."""
    shape = (1, 2, 8, 4)
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["q", "kt"], ["s"]),
             helper.make_node("Mul", ["s", "scale"], ["t"]), helper.make_node("Softmax", ["t"], ["p"], axis=-1),
             helper.make_node("MatMul", ["p", "v"], ["o"]), helper.make_node("Unheard", ["o"], ["y"], domain="com.microsoft")]
    infos = [helper.make_tensor_value_info(name, 1, shape) for name in "qkv"]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", 1, shape)],
                              [onnx.numpy_helper.from_array(np.array(0.5, np.float32), "scale")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(tensorbox.UnsupportedError, match="Unheard"):
        tensorbox.Session(helper.make_model(graph, opset_imports=imports, ir_version=10), compile=False)
