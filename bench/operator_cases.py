"""The cases of operators.py: operators as models use them, each a model of its own with inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

F32, I64, U8 = np.float32, np.int64, np.uint8


@dataclass(frozen=True)
class Case:
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    random: bool = False  # results differ from run to run


CASES: dict[str, Callable[[], Case]] = {}  # made when asked for


def f(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def u(*shape: int, low: int = 0, high: int = 256, dtype: Any = U8) -> np.ndarray:
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


def i(*values: int) -> np.ndarray:
    return np.array(values, I64)


def words(count: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.array(["".join(chr(97 + c) for c in rng.integers(0, 26, rng.integers(2, 12))) for _ in range(count)], object)


def node(op: str, feeds: Sequence[np.ndarray | None], constants: Sequence[np.ndarray | None] = (), outputs: int = 1,
         opset: int = 20, types: Sequence[int] = (), **attributes: Any) -> Case:
    """One node: inputs that change, then constants (None: left out). `types` are the outputs' where they are not
    the first input's."""
    values = [*feeds, *constants]
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(values)]
    given = {name: value for name, value in zip(names, feeds, strict=False) if value is not None}
    fixed = [numpy_helper.from_array(value, name)
             for name, value in zip(names[len(feeds):], constants, strict=True) if value is not None]
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in given.items()]
    first = helper.np_dtype_to_tensor_dtype(next(iter(given.values())).dtype)
    results = [helper.make_tensor_value_info(f"o{k}", types[k] if k < len(types) else first, None) for k in range(outputs)]
    graph = helper.make_graph([helper.make_node(op, names, [info.name for info in results], **attributes)],
                              op, infos, results, fixed)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(attributes[key], 1) for key in ["domain"] if key in attributes)]
    return Case(helper.make_model(graph, opset_imports=imports, ir_version=10), given)


def text(body: str, random: bool = False, **feeds: np.ndarray) -> Case:
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]>\n' + body)
    return Case(model, feeds, random)


def add(name: str, op: str, *arguments: Any, **options: Any) -> None:
    """A case whose arguments are made when it is asked for: callables of no argument in `arguments` are called."""
    assert name not in CASES, name
    CASES[name] = lambda: node(op, *[a() if callable(a) else a for a in arguments], **options)


def _regions() -> None:
    def boxes(count: int, size: float) -> np.ndarray:
        rng = np.random.default_rng(3)
        start = rng.uniform(0, size * 0.7, (count, 2))
        return np.concatenate([start, start + rng.uniform(8, size * 0.3, (count, 2))], 1).astype(F32)

    for mode in "avg", "max":
        add(f"RoiAlign {mode} 200 regions 7x7", "RoiAlign",
            lambda: [f(1, 256, 50, 68), boxes(200, 800.0), np.zeros(200, I64)], opset=16, output_height=7,
            output_width=7, sampling_ratio=2, spatial_scale=1 / 16, mode=mode)
    add("RoiAlign adaptive 100 regions 14x14", "RoiAlign",
        lambda: [f(1, 64, 50, 68), boxes(100, 800.0), np.zeros(100, I64)], opset=16, output_height=14,
        output_width=14, sampling_ratio=0, spatial_scale=1 / 16)
    for mode in "linear", "nearest", "cubic":
        add(f"GridSample 2-D {mode}", "GridSample",
            lambda: [f(2, 32, 64, 64), np.clip(f(2, 64, 64, 2), -1.2, 1.2)], mode=mode)
    add("GridSample 2-D 3 channels border", "GridSample",
        lambda: [f(1, 3, 256, 256), np.clip(f(1, 256, 256, 2), -1, 1)], padding_mode="border")
    add("GridSample 3-D linear", "GridSample", lambda: [f(1, 16, 16, 32, 32), np.clip(f(1, 16, 32, 32, 3), -1, 1)])

    def scores() -> np.ndarray:
        return np.random.default_rng(4).uniform(0, 1, (1, 20, 2000)).astype(F32) ** 4

    add("NonMaxSuppression 20 classes 2000 boxes", "NonMaxSuppression", lambda: [boxes(2000, 640.0)[None], scores()],
        [i(100), np.array([0.5], F32), np.array([0.3], F32)], types=[TensorProto.INT64])
    add("MaxRoiPool 100 regions", "MaxRoiPool",
        lambda: [f(1, 128, 50, 68), np.concatenate([np.zeros((100, 1), F32), boxes(100, 800.0)], 1)],
        pooled_shape=[7, 7], spatial_scale=1 / 16)
    add("DeformConv 3x3", "DeformConv", lambda: [f(1, 64, 40, 40), f(64, 64, 3, 3), f(1, 18, 38, 38)])


def _resize() -> None:
    for mode in "nearest", "linear", "cubic":
        for scale in 2.0, 0.5:
            options = {"mode": mode}
            if mode == "nearest":
                options |= {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
            add(f"Resize {mode} x{scale:g}", "Resize", lambda: [f(1, 32, 128, 128)],
                [None, np.array([1, 1, scale, scale], F32)], **options)
        add(f"Resize {mode} to 224x224, 3 channels", "Resize", lambda: [f(1, 3, 480, 640)], [None, None, i(1, 3, 224, 224)],
            mode=mode)
    add("Resize linear align_corners", "Resize", lambda: [f(1, 64, 32, 32)], [None, None, i(1, 64, 65, 65)],
        mode="linear", coordinate_transformation_mode="align_corners")
    add("Resize linear antialias", "Resize", lambda: [f(1, 3, 480, 640)], [None, None, i(1, 3, 224, 224)], mode="linear",
        antialias=1)
    add("Resize cubic antialias", "Resize", lambda: [f(1, 3, 480, 640)], [None, None, i(1, 3, 224, 224)], mode="cubic",
        antialias=1)
    add("Resize linear 3-D", "Resize", lambda: [f(1, 8, 16, 32, 32)], [None, np.array([1, 1, 2, 2, 2], F32)], mode="linear")
    add("Resize linear uint8", "Resize", lambda: [u(1, 3, 480, 640)], [None, None, i(1, 3, 224, 224)], mode="linear")
    add("Resize linear channels last", "Resize", lambda: [f(1, 480, 640, 3)], [None, None, i(1, 224, 224, 3)], mode="linear")
    for size, large in (64, 512), (65, 513):
        classes = f"""g(float[1,21,{size},{size}] x) => (int64[1,{large},{large}] y) {{ none = Constant<value = float[0] {{}}>()
            s = Constant<value_ints = [1, 21, {large}, {large}]>() r = Resize<mode="linear">(x, none, none, s)
            y = ArgMax<axis=1, keepdims=0>(r) }}"""
        CASES[f"Resize linear to {large}x{large}, ArgMax of 21 classes"] = (
            lambda body=classes, n=size: text(body, x=f(1, 21, n, n)))


def _indexing() -> None:
    add("Gather rows", "Gather", lambda: [f(30000, 256), u(4, 256, high=30000, dtype=I64)])
    add("Gather axis 1", "Gather", lambda: [f(256, 1000, 4), u(300, high=1000, dtype=I64)], axis=1)
    add("Gather last axis", "Gather", lambda: [f(512, 1000), u(300, high=1000, dtype=I64)], axis=1)
    add("GatherElements axis 1", "GatherElements", lambda: [f(1000, 512), u(1000, 300, high=512, dtype=I64)], axis=1)
    add("GatherElements axis 0", "GatherElements", lambda: [f(1000, 300), u(1000, 300, high=1000, dtype=I64)], axis=0)
    add("GatherND rows", "GatherND", lambda: [f(64, 64, 128), u(4000, 2, high=64, dtype=I64)])
    add("GatherND elements", "GatherND", lambda: [f(64, 64, 64), u(100000, 3, high=64, dtype=I64)])
    add("ScatterElements axis 1", "ScatterElements",
        lambda: [f(1000, 512), np.argsort(f(1000, 512), 1)[:, :300].astype(I64), f(1000, 300)], axis=1)
    add("ScatterElements add axis 0", "ScatterElements",
        lambda: [f(1000, 300), u(1000, 300, high=1000, dtype=I64), f(1000, 300)], axis=0, reduction="add")
    add("ScatterND rows", "ScatterND",
        lambda: [f(4096, 256), np.random.default_rng(5).permutation(4096)[:1000, None].astype(I64), f(1000, 256)])
    add("ScatterND elements", "ScatterND", lambda: [
        f(512, 512), np.stack(np.divmod(np.random.default_rng(5).permutation(512 * 512)[:50000], 512), 1).astype(I64),
        f(50000)])
    add("ScatterND add", "ScatterND", lambda: [f(4096, 256), u(1000, 1, high=4096, dtype=I64), f(1000, 256)], reduction="add")
    add("OneHot last axis", "OneHot", lambda: [u(4096, high=512, dtype=I64)], [i(512), np.array([0, 1], F32)],
        types=[TensorProto.FLOAT])
    add("OneHot axis 1", "OneHot", lambda: [u(16, 64, 64, high=21, dtype=I64)], [i(21), np.array([0, 1], F32)],
        types=[TensorProto.FLOAT], axis=1)


def _selection() -> None:
    for n, k in (100000, 100), (1000, 5), (8400, 300), (50000, 50000), (100, 1), (100, 5):
        rows = max(1, 100000 // n)
        add(f"TopK {k} of {n}", "TopK", lambda rows=rows, n=n: [f(rows, n)], [i(k)], outputs=2,
            types=[TensorProto.FLOAT, TensorProto.INT64])
    add("TopK 10 along axis 1 of 3", "TopK", lambda: [f(8, 100, 400)], [i(10)], outputs=2,
        types=[TensorProto.FLOAT, TensorProto.INT64], axis=1)
    add("TopK int64 smallest", "TopK", lambda: [u(100, 1000, high=1 << 40, dtype=I64)], [i(10)], outputs=2, largest=0)
    add("NonZero sparse", "NonZero", lambda: [(f(512, 512) > 2).astype(F32)], types=[TensorProto.INT64])
    add("NonZero bool half", "NonZero", lambda: [f(512, 512) > 0], types=[TensorProto.INT64])
    add("Compress rows", "Compress", lambda: [f(4096, 128), f(4096) > 0], axis=0)
    add("Compress elements", "Compress", lambda: [f(300000), f(300000) > 0], axis=0)
    add("Compress last axis", "Compress", lambda: [f(1000, 512), f(512) > 0], axis=1)
    add("Unique int64", "Unique", lambda: [u(100000, high=5000, dtype=I64)], outputs=4, types=[TensorProto.INT64] * 4)
    add("Unique float values", "Unique", lambda: [np.round(f(100000), 2)])
    add("Unique rows", "Unique", lambda: [u(2000, 8, high=3, dtype=I64)], outputs=4, types=[TensorProto.INT64] * 4, axis=0)
    for axis, shape in (-1, (1000, 512)), (0, (1000, 512)), (1, (16, 256, 128)):
        add(f"ArgMax axis {axis} of {shape}", "ArgMax", lambda s=shape: [f(*s)], types=[TensorProto.INT64], axis=axis)
    add("ArgMax 21 classes of 512x512", "ArgMax", lambda: [f(1, 21, 256, 256)], types=[TensorProto.INT64], axis=1)
    add("Where masks", "Where", lambda: [f(1, 12, 256, 256) > 0, f(1, 12, 256, 256), f(1, 12, 256, 256)],
        types=[TensorProto.FLOAT])
    add("Where broadcast", "Where", lambda: [f(1, 1, 256, 256) > 0, f(1, 12, 256, 256), f(1)], types=[TensorProto.FLOAT])
    add("CumSum last axis", "CumSum", lambda: [f(1000, 512)], [i(1)[0]])
    add("CumSum axis 0", "CumSum", lambda: [f(1000, 512)], [i(0)[0]])
    add("CumSum one row int64", "CumSum", lambda: [u(100000, high=9, dtype=I64)], [i(0)[0]])


def _windows() -> None:
    add("MaxPool 3x3 s2", "MaxPool", lambda: [f(1, 64, 112, 112)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    add("MaxPool 2x2 s2", "MaxPool", lambda: [f(4, 64, 64, 64)], kernel_shape=[2, 2], strides=[2, 2])
    add("MaxPool 13x13 s1", "MaxPool", lambda: [f(1, 256, 20, 20)], kernel_shape=[13, 13], pads=[6, 6, 6, 6])
    add("MaxPool with indices", "MaxPool", lambda: [f(1, 64, 64, 64)], kernel_shape=[2, 2], strides=[2, 2], outputs=2,
        types=[TensorProto.FLOAT, TensorProto.INT64])
    add("MaxPool 3-D", "MaxPool", lambda: [f(1, 16, 16, 56, 56)], kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    add("MaxPool 1-D", "MaxPool", lambda: [f(8, 128, 1024)], kernel_shape=[3], strides=[2], pads=[1, 1])
    add("AveragePool 3x3 s1", "AveragePool", lambda: [f(1, 64, 56, 56)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    add("AveragePool 2x2 s2", "AveragePool", lambda: [f(4, 64, 64, 64)], kernel_shape=[2, 2], strides=[2, 2])
    add("LpPool 3x3 s2", "LpPool", lambda: [f(1, 64, 64, 64)], kernel_shape=[3, 3], strides=[2, 2], p=2)
    add("GlobalAveragePool", "GlobalAveragePool", lambda: [f(8, 512, 14, 14)])
    add("GlobalMaxPool", "GlobalMaxPool", lambda: [f(8, 512, 14, 14)])
    add("LRN 5", "LRN", lambda: [f(1, 96, 55, 55)], size=5, alpha=1e-4, beta=0.75)
    for channels, size in ((64, 56), (256, 14), (512, 7)):
        add(f"Conv 3x3 of {channels} on {size} x {size}", "Conv", lambda c=channels, n=size: [f(1, c, n, n)],
            lambda c=channels: [f(c, c, 3, 3)], pads=[1, 1, 1, 1])
    add("Conv 3x3 of 32 to 1 on 128 x 128", "Conv", lambda: [f(1, 32, 128, 128)], lambda: [f(1, 32, 3, 3)], pads=[1, 1, 1, 1])
    add("Conv as STFT of 400, 64 results", "Conv", lambda: [f(1, 1, 16000)], lambda: [f(64, 1, 400)], strides=[160], pads=[200, 200])
    add("ConvTranspose 4x4 s2", "ConvTranspose", lambda: [f(1, 64, 32, 32)], lambda: [f(64, 32, 4, 4)], strides=[2, 2],
        pads=[1, 1, 1, 1])
    add("ConvTranspose 2x2 s2", "ConvTranspose", lambda: [f(1, 64, 64, 64)], lambda: [f(64, 32, 2, 2)], strides=[2, 2])
    add("ConvTranspose depthwise", "ConvTranspose", lambda: [f(1, 64, 32, 32)], lambda: [f(64, 1, 4, 4)], strides=[2, 2],
        pads=[1, 1, 1, 1], group=64)
    add("ConvTranspose 1-D", "ConvTranspose", lambda: [f(1, 128, 500)], lambda: [f(128, 64, 16)], strides=[8], pads=[4, 4])
    add("Col2Im", "Col2Im", lambda: [f(1, 32 * 9, 32 * 32)], [i(32, 32), i(3, 3)], pads=[1, 1, 1, 1])


def _normal() -> None:
    add("InstanceNormalization", "InstanceNormalization", lambda: [f(2, 64, 64, 64), f(64), f(64)])
    add("GroupNormalization", "GroupNormalization", lambda: [f(2, 64, 64, 64), f(64), f(64)], opset=21, num_groups=8)
    for channels in (256, 320):  # as diffusion models have them: behind a convolution channels lie innermost
        body = f"""g(float[1,4,64,64] x, float[{channels},1,1] a, float[{channels},1,1] b) => (float[1,{channels},64,64] y) {{
            k = Constant<value_ints = [{channels}, 4, 1, 1]>() w = ConstantOfShape<value = float[1] {{0.1}}>(k) c = Conv(x, w)
            s = Constant<value_ints = [0, 32, -1]>() r = Reshape(c, s) one = Constant<value_float = 1.0>()
            n32 = Constant<value_ints = [32]>() ones = Expand(one, n32) zeros = Sub(ones, ones)
            i = InstanceNormalization(r, ones, zeros) t = Shape(c) u = Reshape(i, t)
            v = Mul(u, a) z = Add(v, b) q = Sigmoid(z) y = Mul(z, q) }}"""
        CASES[f"Conv, GroupNorm and SiLU of {channels} channels"] = (
            lambda body=body, n=channels: text(body, x=f(1, 4, 64, 64), a=f(n, 1, 1), b=f(n, 1, 1)))
    add("Mul by a scale of each channel", "Mul", lambda: [f(1, 64, 64, 64), f(64, 1, 1)])
    add("LayerNormalization", "LayerNormalization", lambda: [f(1, 256, 768), f(768), f(768)])
    add("BatchNormalization", "BatchNormalization", lambda: [f(2, 64, 64, 64), f(64), f(64), f(64), abs(f(64))])
    add("MeanVarianceNormalization", "MeanVarianceNormalization", lambda: [f(2, 64, 32, 32)])
    add("LpNormalization", "LpNormalization", lambda: [f(1000, 512)], axis=1)
    for axis, shape in (-1, (12, 256, 256)), (1, (1, 21, 128, 128)), (0, (1000, 512)), (1, (8400, 81)):
        add(f"Softmax axis {axis} of {shape}", "Softmax", lambda s=shape: [f(*s)], axis=axis)
    add("LogSoftmax last axis", "LogSoftmax", lambda: [f(64, 30000)])
    for op in "ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceProd":
        for name, axes, shape in (("leading", (0,), (512, 1024)), ("middle", (1,), (16, 256, 128)),
                                  ("trailing", (1,), (1024, 512)), ("outer and inner", (0, 2, 3), (8, 64, 28, 28)),
                                  ("all", (0, 1), (512, 1024))):
            if op in ("ReduceSum", "ReduceMax") or name in ("leading", "trailing"):
                add(f"{op} {name}", op, lambda s=shape: [f(*s) + 1], [i(*axes)])
    add("ReduceSum int64 trailing", "ReduceSum", lambda: [u(1024, 512, dtype=I64)], [i(1)])
    add("ReduceMax uint8 trailing", "ReduceMax", lambda: [u(1024, 512)], [i(1)])


def _movement() -> None:
    for shape, permutation in (
        ((1, 256, 12, 64), (0, 2, 1, 3)), ((1, 12, 256, 64), (0, 1, 3, 2)), ((1024, 512), (1, 0)),
        ((1, 64, 112, 112), (0, 2, 3, 1)), ((1, 112, 112, 64), (0, 3, 1, 2)), ((1, 3, 480, 640), (0, 2, 3, 1)),
        ((1, 480, 640, 3), (0, 3, 1, 2)), ((8, 16, 32, 64), (3, 2, 1, 0)), ((4, 8, 4, 8, 16, 16), (0, 2, 4, 1, 3, 5)),
        ((1, 8, 56, 7, 8, 32), (0, 1, 3, 2, 4, 5)), ((64, 32, 128), (1, 0, 2)), ((100, 100, 5, 5), (2, 3, 0, 1)),
    ):
        add(f"Transpose {shape} {permutation}", "Transpose", lambda s=shape: [f(*s)], perm=permutation)
    add("Transpose uint8 (1, 480, 640, 3) (0, 3, 1, 2)", "Transpose", lambda: [u(1, 480, 640, 3)], perm=(0, 3, 1, 2))
    add("Transpose int64 (1000, 500)", "Transpose", lambda: [u(1000, 500, dtype=I64)], perm=(1, 0))
    for mode in "constant", "reflect", "edge", "wrap":
        add(f"Pad {mode}", "Pad", lambda: [f(1, 64, 112, 112)], [i(0, 0, 3, 3, 0, 0, 3, 3)], mode=mode)
    add("Pad constant last axis", "Pad", lambda: [f(1000, 500)], [i(0, 0, 0, 12)])
    add("Tile", "Tile", lambda: [f(1, 128, 128)], [i(8, 2, 2)])
    add("Expand", "Expand", lambda: [f(1, 8, 1, 128, 64)], [i(1, 8, 4, 128, 64)])
    add("Expand inner", "Expand", lambda: [f(512, 64, 1)], [i(512, 64, 16)])
    add("Concat axis 1", "Concat", lambda: [f(1, 64, 80, 80), f(1, 64, 80, 80), f(1, 32, 80, 80)], axis=1)
    add("Concat last axis", "Concat", lambda: [f(8400, 4), f(8400, 80), f(8400, 1)], axis=1)
    add("Split axis 1", "Split", lambda: [f(1, 128, 80, 80)], [i(64, 64)], outputs=2, axis=1)
    add("Split last axis", "Split", lambda: [f(256, 2304)], [i(768, 768, 768)], outputs=3, axis=1)
    add("Slice strided", "Slice", lambda: [f(1, 64, 128, 128)], [i(0, 0), i(128, 128), i(2, 3), i(2, 2)])
    add("Slice backwards", "Slice", lambda: [f(1000, 512)], [i(-1), i(-1000), i(1), i(-1)])
    add("SpaceToDepth", "SpaceToDepth", lambda: [f(1, 16, 160, 160)], blocksize=2)
    add("DepthToSpace", "DepthToSpace", lambda: [f(1, 64, 80, 80)], blocksize=2)
    add("ReverseSequence", "ReverseSequence", lambda: [f(200, 32, 64), u(32, low=1, high=200, dtype=I64)])
    add("Trilu", "Trilu", lambda: [f(12, 256, 256)])
    add("EyeLike", "EyeLike", lambda: [f(512, 512)])
    add("CenterCropPad", "CenterCropPad", lambda: [f(480, 640, 3)], [i(512, 512)], axes=[0, 1])


def _elements() -> None:
    types = {"uint8": TensorProto.UINT8, "int32": TensorProto.INT32, "int64": TensorProto.INT64, "bool": TensorProto.BOOL,
             "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float64": TensorProto.DOUBLE}
    for name, number in types.items():
        if name != "bfloat16":  # which numpy does not have
            add(f"Cast float32 to {name}", "Cast", lambda: [np.abs(f(512, 512)) * 50], types=[number], to=number)
            add(f"Cast {name} to float32", "Cast", lambda n=name: [(np.abs(f(512, 512)) * 50).astype(n)],
                types=[TensorProto.FLOAT], to=TensorProto.FLOAT)
    add("Cast int64 to int32", "Cast", lambda: [u(512, 512, dtype=I64)], types=[TensorProto.INT32], to=TensorProto.INT32)
    for op in ("Exp", "Erf", "Gelu", "Tanh", "Sigmoid", "Log", "Sqrt", "Sin", "Softplus", "Mish", "HardSwish", "Round",
               "Elu", "Floor", "Acos", "Atan", "IsNaN"):
        add(op, op, lambda op=op: [np.abs(f(1, 64, 64, 64)) % 1], types=[TensorProto.BOOL] if op == "IsNaN" else ())
    add("Pow", "Pow", lambda: [np.abs(f(1, 64, 64, 64)), f(1, 64, 64, 64)])
    add("Pow 2", "Pow", lambda: [f(1, 64, 64, 64)], [np.array(2, F32)])
    add("Div int64", "Div", lambda: [u(256, 1024, dtype=I64), u(256, 1024, low=1, dtype=I64)])
    add("Mod int64", "Mod", lambda: [u(256, 1024, dtype=I64), u(256, 1024, low=1, dtype=I64)])
    add("Add broadcast inner", "Add", lambda: [f(64, 64, 64), f(64, 64, 1)])
    add("Add broadcast outer", "Add", lambda: [f(64, 64, 64), f(64)])
    add("Clip", "Clip", lambda: [f(1, 64, 64, 64)], [np.array(0, F32), np.array(6, F32)])
    add("QuantizeLinear", "QuantizeLinear", lambda: [f(1, 64, 64, 64)], [np.array(0.02, F32), np.array(128, U8)],
        types=[TensorProto.UINT8])
    add("QuantizeLinear per channel", "QuantizeLinear", lambda: [f(512, 512)],
        [np.full(512, 0.02, F32), np.zeros(512, np.int8)], types=[TensorProto.INT8], axis=0)
    add("DequantizeLinear", "DequantizeLinear", lambda: [u(1, 64, 64, 64)], [np.array(0.02, F32), np.array(128, U8)],
        types=[TensorProto.FLOAT])
    add("DequantizeLinear per channel", "DequantizeLinear", lambda: [u(512, 512, low=-128, high=128, dtype=np.int8)],
        [np.full(512, 0.02, F32), np.zeros(512, np.int8)], types=[TensorProto.FLOAT], axis=1)
    add("DynamicQuantizeLinear", "DynamicQuantizeLinear", lambda: [f(256, 768)], outputs=3,
        types=[TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8])
    add("RandomNormalLike", "RandomNormalLike", lambda: [f(512, 512)])
    CASES["RandomNormalLike"] = lambda: Case(node("RandomNormalLike", [f(512, 512)]).model, {"i0": f(512, 512)}, True)


def _signal() -> None:
    equations = {"bhid,bhjd->bhij": ((2, 8, 128, 64), (2, 8, 128, 64)), "bij,bjk->bik": ((8, 128, 64), (8, 64, 128)),
                 "bnts,bsnh->btnh": ((1, 12, 128, 128), (1, 128, 12, 64)), "i,j->ij": ((1024,), (512,)),
                 "bij,bij->bi": ((16, 256, 128), (16, 256, 128)), "bhwc,hkc->bhwk": ((8, 14, 14, 64), (14, 14, 64))}
    for equation, (a, b) in equations.items():
        add(f"Einsum {equation}", "Einsum", lambda a=a, b=b: [f(*a), f(*b)], equation=equation)
    add("Einsum ij->ji", "Einsum", lambda: [f(512, 512)], equation="ij->ji")
    add("DFT 1024", "DFT", lambda: [f(64, 1024, 1)], [None, i(1)[0]])
    add("DFT 1000 one-sided", "DFT", lambda: [f(64, 1000, 1)], [None, i(1)[0]], onesided=1)
    add("DFT 1009", "DFT", lambda: [f(16, 1009, 2)], [None, i(1)[0]])
    add("STFT 400/160", "STFT", lambda: [f(1, 48000, 1)], [i(160)[0], np.hanning(400).astype(F32), i(400)[0]])
    add("STFT 512/128", "STFT", lambda: [f(1, 48000, 1)], [i(128)[0], np.hanning(512).astype(F32), i(512)[0]])


def _recurrent() -> None:
    for op, gates in ("LSTM", 4), ("GRU", 3), ("RNN", 1):
        for length, batch, size, hidden in (50, 1, 128, 128), (30, 16, 64, 256):
            for direction in ("forward", "bidirectional") if op == "LSTM" else ("forward",):
                d = 1 + (direction != "forward")
                add(f"{op} {direction} length {length} batch {batch} hidden {hidden}", op,
                    lambda t=length, b=batch, s=size: [f(t, b, s)],
                    lambda g=gates, h=hidden, s=size, d=d: [f(d, g * h, s) * F32(0.1), f(d, g * h, h, seed=1) * F32(0.1),
                                                            f(d, 2 * g * h) * F32(0.1)],
                    hidden_size=hidden, direction=direction, outputs=2)
    add("GRU length 60 batch 32 hidden 256, linear before reset", "GRU", lambda: [f(60, 32, 128)],
        lambda: [f(2, 768, 128) * F32(0.1), f(2, 768, 256, seed=1) * F32(0.1), f(2, 1536) * F32(0.1)],
        hidden_size=256, direction="bidirectional", linear_before_reset=1, outputs=2)


def _values() -> None:
    add("StringNormalizer", "StringNormalizer", lambda: [words(20000)], case_change_action="UPPER")
    add("RegexFullMatch", "RegexFullMatch", lambda: [words(20000)], types=[TensorProto.BOOL], pattern="[a-m]+.*")
    add("StringConcat", "StringConcat", lambda: [words(20000), words(20000)])
    add("StringSplit", "StringSplit", lambda: [words(20000)], outputs=2, types=[TensorProto.STRING, TensorProto.INT64],
        delimiter="e")
    add("Cast string to float32", "Cast", lambda: [np.array([f"{v:.6f}" for v in f(20000)], object)],
        types=[TensorProto.FLOAT], to=TensorProto.FLOAT)
    add("Cast int64 to string", "Cast", lambda: [u(20000, high=1 << 40, dtype=I64)], types=[TensorProto.STRING],
        to=TensorProto.STRING)
    add("Gather strings", "Gather", lambda: [words(20000), u(20000, high=20000, dtype=I64)])
    add("TfIdfVectorizer", "TfIdfVectorizer", lambda: [u(64, 256, high=500, dtype=I64)], types=[TensorProto.FLOAT], mode="TF",
        min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 400], ngram_indexes=list(range(600)),
        pool_int64s=[*range(400), *(v for k in range(200) for v in (k, k + 1))])
    loop = """g(int64 n, float[k] x) => (float[k] y) { c = Constant<value = bool {1}>()
        y = Loop(n, c, x) <body = b(int64 j, bool ci, float[k] s) => (bool co, float[k] so) {
            co = Identity(ci) e = Cast<to=1>(j) so = Add(s, e) }> }"""
    CASES["Loop 1000 iterations"] = lambda: text(loop, n=np.array(1000), x=np.ones(16, F32))
    gather = """g(int64 n, float[k] x) => (float[t,k] y) { c = Constant<value = bool {1}>()
        s, y = Loop(n, c, x) <body = b(int64 j, bool ci, float[k] s) => (bool co, float[k] so, float[k] o) {
            co = Identity(ci) so = Tanh(s) o = Neg(so) }> }"""
    CASES["Loop 200 iterations, stacked"] = lambda: text(gather, n=np.array(200), x=np.ones(256, F32))
    scan = """g(float[k] h, float[t,k] x) => (float[k] y, float[t,k] ys) {
        y, ys = Scan(h, x) <num_scan_inputs=1, body = b(float[k] s, float[k] e) => (float[k] so, float[k] o) {
            a = Add(s, e) so = Tanh(a) o = Identity(so) }> }"""
    CASES["Scan 200 steps"] = lambda: text(scan, h=np.ones(256, F32), x=f(200, 256))
    mapped = """g(float[n,k] x) => (float[n,k] y) { one = Constant<value_int=1>()
        s = SplitToSequence<axis=0>(x, one) m = SequenceMap(s) <body = b(float[a,k] e) => (float[a,k] r) { r = Relu(e) }>
        y = ConcatFromSequence<axis=0>(m) }"""
    CASES["SequenceMap 200 elements"] = lambda: text(mapped, x=f(200, 64))
    branch = """g(bool c, float[k] x) => (float[k] y) { y = If(c) <then_branch = t() => (float[k] v) { v = Neg(x) },
        else_branch = e() => (float[k] w) { w = Abs(x) }> }"""
    CASES["If"] = lambda: text(branch, c=np.array(True), x=f(4096))


def _packed_weights() -> None:
    """Weights of 4 bits in blocks of 32; level 4 rounds the rows to bytes."""
    deep, wide = 1024, 4096
    for level in (0, 4):
        for rows in (1, 4, 16, 128):
            add(f"MatMulNBits of {rows} rows, level {level}", "MatMulNBits", lambda rows=rows: [f(rows, deep)],
                lambda: [u(wide, deep // 32, 16), np.abs(f(wide, deep // 32)) / 100], domain="com.microsoft", K=deep, N=wide, bits=4,
                block_size=32, accuracy_level=level)


def _attention() -> None:
    def one_token(past: int) -> list[np.ndarray]:
        """32 heads that share 8 of keys and values: those of the token, those before it, and how many there are."""
        cache = f(1, 8, past, 64)
        return [f(1, 1, 2048), f(1, 1, 512), f(1, 1, 512), cache, cache, np.array([past], np.int32), np.array(past + 1, np.int32)]

    for past in (127, 1023, 4095):
        add(f"GroupQueryAttention of a token after {past}", "GroupQueryAttention", lambda past=past: one_token(past), outputs=3,
            domain="com.microsoft", num_heads=32, kv_num_heads=8)

    def linear(tokens: int) -> list[np.ndarray]:
        """8 heads of 64: queries, keys of length 1, values, state, decay, beta."""
        key = f(1, tokens, 8, 64, seed=1)
        key /= np.linalg.norm(key, axis=-1, keepdims=True)
        return [f(1, tokens, 512), key.reshape(1, tokens, 512), f(1, tokens, 512, seed=2), f(1, 8, 64, 64), -np.abs(f(1, tokens, 8)),
                np.abs(f(1, tokens, 8)) % 1]

    for tokens in (1, 256):
        add(f"LinearAttention of {tokens} tokens", "LinearAttention", lambda tokens=tokens: linear(tokens), outputs=2,
            domain="com.microsoft", q_num_heads=8, kv_num_heads=8)


def _experts() -> None:
    """2 of 8 experts for each token, as sparse language models have them."""
    experts, hidden, inter = 8, 512, 1408
    form = {"domain": "com.microsoft", "k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}

    def floats() -> list[np.ndarray]:
        return [f(experts, 2 * inter, hidden) / 20, f(experts, 2 * inter), f(experts, hidden, inter) / 30, f(experts, hidden)]

    def integers() -> list[np.ndarray]:
        return [u(experts, 2 * inter, hidden // 2), np.abs(f(experts, 2 * inter, hidden // 32)) / 100, f(experts, 2 * inter),
                u(experts, hidden, inter // 2), np.abs(f(experts, hidden, inter // 32)) / 100, f(experts, hidden)]

    for tokens in (1, 64):
        router = [f(tokens, hidden), f(tokens, experts, seed=1)]
        add(f"MoE of {tokens} tokens", "MoE", router, floats, **form)
        add(f"QMoE of {tokens} tokens", "QMoE", router, integers, block_size=32, **form)


for family in (_packed_weights, _attention, _experts, _regions, _resize, _indexing, _selection, _windows, _normal, _movement, _elements, _signal, _recurrent,
               _values):
    family()
