"""What test_gradient.py differentiates: per operator a line of nodes that make c of x and w."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Case:
    body: str
    x: tuple[int, ...] = (3, 4)
    w: tuple[int, ...] | None = None
    low: float = 0.1
    high: float = 0.95
    signed: bool = True
    opset: int = 18
    step: float = 1e-5
    tolerance: float = 2e-6
    sum: str = "y = ReduceSum<keepdims = 0>(squares)"


def ints(name: str, *values: int) -> str:
    return f"{name} = Constant<value_ints = [{', '.join(map(str, values))}]> ()"


def unary(op: str, **more: object) -> Case:
    return Case(f"c = {op}(x)", **more)


def binary(op: str, w: tuple[int, ...] = (3, 1), **more: object) -> Case:
    return Case(f"c = {op}(x, w)", w=w, **more)


def fixed(name: str, *sizes: int) -> str:
    """A constant of these sizes."""
    count = int(np.prod(sizes))
    numbers = ", ".join(f"{0.7 * np.sin(3.0 * i + 1):.3f}" for i in range(count))
    return f"{name} = Constant<value = double[{', '.join(map(str, sizes))}] {{{numbers}}}> ()"


def recurrent(op: str, gates: int, attributes: str, directions: int = 1, bias: bool = False, lengths: bool = False,
              peepholes: bool = False, states: int = 1) -> Case:
    """Three steps of a batch of two, two hidden units; x is the input, w the weights of the input."""
    d, h, batch_first = directions, 2, "layout = 1" in attributes
    state = (2, d, h) if batch_first else (d, 2, h)
    nodes = [fixed("R", d, gates * h, h), fixed("h0", *state), fixed("c0", *state)]
    inputs = ["x", "w", "R", "", "", "h0"] + ["c0"] * (states == 2)
    if bias:
        nodes.append(fixed("B", d, 2 * gates * h))
        inputs[3] = "B"
    if lengths:
        nodes.append("n = Constant<value = int32[2] {2, 3}> ()")
        inputs[4] = "n"
    if peepholes:
        nodes.append(fixed("P", d, 3 * h))
        inputs.append("P")
    results = ["all", "h1", "c1"][:1 + states]
    nodes.append(f"{', '.join(results)} = {op}<hidden_size = {h}, {attributes}>({', '.join(inputs)})")
    nodes.append("flat_sizes = Constant<value_ints = [-1]> ()")
    nodes += [f"{name}_flat = Reshape({name}, flat_sizes)" for name in results]
    nodes.append(f"c = Concat<axis = 0>({', '.join(name + '_flat' for name in results)})")
    return Case(" ".join(nodes), x=(2, 3, 3) if batch_first else (3, 2, 3), w=(d, gates * h, 3))


MICROSOFT = "com.microsoft."
SMOOTH = ["Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish",
          "Identity", "LeakyRelu", "LogSoftmax", "Mish", "Neg", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sin", "Sinh",
          "Softmax", "Softplus", "Softsign", "Tan", "Tanh", "Elu<alpha = 0.3>", "Shrink<lambd = 0.4, bias = 0.2>",
          "ThresholdedRelu<alpha = 0.3>", "LeakyRelu<alpha = 0.2>", "Dropout", "Hardmax", "Flatten", "Transpose",
          "Gelu", "Gelu<approximate = \"tanh\">", "Ceil", "Floor", "Round", "Sign", "LpNormalization", "LpNormalization<p = 1, axis = 0>",
          MICROSOFT + "Gelu", MICROSOFT + "FastGelu", MICROSOFT + "QuickGelu", MICROSOFT + "QuickGelu<alpha = 0.5>"]
CASES: dict[str, Case] = {op: unary(op, opset=20) for op in SMOOTH}
CASES |= {op: unary(op, signed=False) for op in ("Log", "Sqrt")}
CASES |= {op: binary(op) for op in ("Add", "Sub", "Mul", "Max", "Min", "PRelu", "Sum", "Mean", "Mod<fmod = 1>")}
CASES |= {
    "Div": binary("Div", low=0.4),
    "Celu": Case("h = Cast<to = 1>(x) k = Celu<alpha = 0.7>(h) c = Cast<to = 11>(k)", step=1e-2, tolerance=5e-4),
    "Acosh": unary("Acosh", signed=False, low=1.1, high=2),
    "Pow": binary("Pow", signed=False),
    "Pow-constants": Case("e = Constant<value = double[4] {0.5, 2, -1, 0}> () c = Pow(x, e)", signed=False),
    "Pow-cube": Case("e = Constant<value = double {3}> () c = Pow(x, e)"),
    "Pow-root": Case("e = Constant<value = double {0.5}> () c = Pow(x, e)", signed=False),
    "Swish": Case("c = Swish<alpha = 1.5>(x)", opset=24),
    "SwiGLU": binary("SwiGLU", w=(3, 4), opset=28),
    "Clip": Case("lo = Constant<value = double {-0.5}> () hi = Constant<value = double {0.6}> () c = Clip(x, lo, hi)"),
    "Clip-6": Case("c = Clip<min = -0.5, max = 0.6>(x)", opset=10),
    "Where": Case("zero = Constant<value = double {0}> () k = Less(x, zero) c = Where(k, x, w)", w=(4,)),
    "Cast": Case("h = Cast<to = 1>(x) c = Cast<to = 11>(h)", step=1e-2, tolerance=2e-4),
    "CastLike": Case("c = CastLike(x, w)", w=(1,)),
    "Expand": Case(ints("s", 2, 3, 4) + " c = Expand(x, s)", x=(3, 1)),
    "BiasGelu": binary(MICROSOFT + "BiasGelu", w=(4,)),
    "BiasAdd": Case("s = Transpose(x) c = com.microsoft.BiasAdd(x, w, x)", w=(4,), x=(2, 3, 4)),
    "BiasSplitGelu": binary(MICROSOFT + "BiasSplitGelu", w=(8,), x=(2, 3, 8)),
    # reductions
    **{op: Case(ints("a", 1) + f" c = {op}(x, a)") for op in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
        "ReduceLogSumExp")},
    "ReduceLogSum": Case(ints("a", 0) + " c = ReduceLogSum<keepdims = 0>(x, a)", signed=False),
    "ReduceProd-all": Case("c = ReduceProd<keepdims = 0>(x)", opset=11),
    "ReduceProd-keepdims": Case("c = ReduceProd<axes = [0, 2], keepdims = 0>(x)", x=(2, 3, 2), opset=13),
    "ReduceProd-nothing": Case("c = ReduceProd<noop_with_empty_axes = 1>(x)"),
    "ReduceMean-old": Case("c = ReduceMean<axes = [-1], keepdims = 0>(x)", opset=13),
    "CumSum": Case("a = Constant<value_int = 1> () c = CumSum(x, a)"),
    "CumSum-reverse": Case("a = Constant<value_int = 0> () c = CumSum<reverse = 1, exclusive = 1>(x, a)"),
    "CumProd": Case("a = Constant<value_int = 1> () c = CumProd(x, a)", opset=26),
    "CumProd-reverse": Case("a = Constant<value_int = 0> () c = CumProd<reverse = 1, exclusive = 1>(x, a)", opset=26),
    # products
    "MatMul": binary("MatMul", w=(2, 4, 2)),
    "Gemm": binary("Gemm<alpha = 0.5, transB = 1>", w=(2, 4)),
    "Einsum": binary("Einsum<equation = \"ij,kj->ik\">", w=(2, 4)),
    "Einsum-trace": Case("c = Einsum<equation = \"ii->i\">(x)", x=(3, 3)),
    "Einsum-dots": binary("Einsum<equation = \"...j,kj->...k\">", x=(2, 3, 4), w=(2, 4)),
    "Einsum-implicit": binary("Einsum<equation = \"ij,kj\">", w=(2, 4)),
    "Einsum-sum": binary("Einsum<equation = \"ij,kl->il\">", w=(2, 5)),
    # normalisations
    "LayerNormalization": Case("c = LayerNormalization(x, w, w)", w=(4,), x=(2, 3, 4)),
    "RMSNormalization": Case("c = RMSNormalization(x, w)", w=(4,), x=(2, 3, 4), opset=23),
    "GroupNormalization": Case("c = GroupNormalization<num_groups = 2>(x, w, w)", w=(4,), x=(2, 4, 3), opset=21),
    "GroupNormalization-18": Case("c = GroupNormalization<num_groups = 2>(x, w, w)", w=(2,), x=(2, 4, 3)),
    "InstanceNormalization": Case("c = InstanceNormalization(x, w, w)", w=(3,), x=(2, 3, 5)),
    "MeanVarianceNormalization": Case("c = MeanVarianceNormalization(x)", x=(2, 3, 2, 2)),
    "BatchNormalization": Case("v = Abs(w) c = BatchNormalization(x, w, w, w, v)", w=(3,), x=(2, 3, 4)),
    "BatchNormalization-training": Case(
        "v = Abs(w) c, m, n = BatchNormalization<training_mode = 1>(x, w, w, w, v)", w=(3,), x=(2, 3, 4)),
    "LRN": Case("c = LRN<size = 3, alpha = 0.5, beta = 0.75, bias = 1.0>(x)", x=(2, 5, 3, 2)),
    "LRN-even": Case("c = LRN<size = 4, alpha = 0.5>(x)", x=(1, 5, 2)),
    # convolutions and poolings
    "Conv": binary("Conv<strides = [2, 1], pads = [1, 0, 1, 1]>", x=(2, 2, 5, 6), w=(4, 2, 3, 2)),
    "ConvTranspose": binary("ConvTranspose<strides = [2, 3]>", x=(2, 2, 3, 4), w=(2, 3, 2, 3)),
    "AveragePool": Case("c = AveragePool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]>(x)", x=(2, 2, 5, 6)),
    "MaxPool": Case("c = MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]>(x)", x=(2, 2, 5, 6)),
    "LpPool": Case("c = LpPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], p = 3>(x)", x=(2, 2, 5, 6)),
    "LpPool-2": Case("c = LpPool<kernel_shape = [2]>(x)", x=(1, 2, 6)),
    "GlobalAveragePool": Case("c = GlobalAveragePool(x)", x=(2, 3, 2, 2)),
    "GlobalMaxPool": Case("c = GlobalMaxPool(x)", x=(2, 3, 2, 2)),
    "GlobalLpPool": Case("c = GlobalLpPool<p = 3>(x)", x=(2, 3, 2, 2)),
    "MaxUnpool": Case(f"i = Constant<value = int64[1, 1, 2, 2] {{0, 3, 9, 15}}> () c = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i)",
                      x=(1, 1, 2, 2)),
    "RoiAlign": Case("b = Constant<value = int64[2] {0, 1}> () c = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>"
                     "(x, w, b)", x=(2, 2, 6, 6), w=(2, 4), signed=False, step=1e-6, tolerance=1e-5),
    "MaxRoiPool": Case("r = Constant<value = double[1, 5] {0, 0, 0, 3, 3}> () c = MaxRoiPool<pooled_shape = [2, 2]>(x, r)", x=(1, 2, 6, 6)),
    "GridSample": binary("GridSample<padding_mode = \"border\">", x=(1, 2, 4, 5), w=(1, 3, 2, 2), opset=20),
    "GridSample-cubic": binary("GridSample<mode = \"cubic\">", x=(1, 2, 4, 5), w=(1, 3, 2, 2), opset=20),
    "AffineGrid": Case(ints("s", 2, 1, 3, 4) + " c = AffineGrid(x, s)", x=(2, 2, 3), opset=20),
    "Col2Im": Case(ints("s", 4, 4) + ints(" k", 2, 2) + " c = Col2Im(x, s, k)", x=(1, 8, 9)),
    # movement
    "Slice": Case(ints("s", 1) + ints(" e", 3) + ints(" a", 1) + " c = Slice(x, s, e, a)"),
    "Slice-step": Case(ints("s", -1) + ints(" e", -10) + ints(" a", 1) + ints(" t", -2) + " c = Slice(x, s, e, a, t)"),
    "Gather": Case(ints("i", 2, 0, -1, 2) + " c = Gather<axis = 1>(x, i)"),
    "GatherElements": Case("i = Constant<value = int64[2, 2] {2, 0, 2, 1}> () c = GatherElements(x, i)"),
    "GatherND": Case("i = Constant<value = int64[2, 1] {2, 2}> () c = GatherND(x, i)"),
    "Tile": Case(ints("r", 2, 3) + " c = Tile(x, r)"),
    "Split": Case(ints("s", 1, 3) + " a, b = Split<axis = 1>(x, s) p = Mul(a, b) q = Sin(b) c = Concat<axis = 1>(p, q)"),
    "Concat": Case("c = Concat<axis = -1>(x, w, x)", w=(3, 2)),
    "Trilu": Case("c = Trilu<upper = 0>(x)"),
    "DepthToSpace": Case("c = DepthToSpace<blocksize = 2, mode = \"CRD\">(x)", x=(1, 8, 2, 3)),
    "SpaceToDepth": Case("c = SpaceToDepth<blocksize = 2>(x)", x=(1, 2, 4, 6)),
    "Pad": Case(ints("p", 0, 1, 1, -1) + " v = Constant<value = double {0.7}> () c = Pad(x, p, v)"),
    "Pad-reflect": Case(ints("p", 0, 1, 0, 2) + " c = Pad<mode = \"reflect\">(x, p)"),
    "Pad-edge": Case(ints("p", 0, 1, 0, 2) + " c = Pad<mode = \"edge\">(x, p)"),
    "Pad-wrap": Case(ints("p", 0, 1, 0, 2) + " c = Pad<mode = \"wrap\">(x, p)", opset=19),
    "ReverseSequence": Case("l = Constant<value = int64[4] {3, 2, 1, 3}> () c = ReverseSequence(x, l)"),
    "TopK": Case(ints("k", 2) + " c, i = TopK(x, k)"),
    "Compress": Case("k = Constant<value = bool[3] {1, 0, 1}> () c = Compress<axis = 0>(x, k)"),
    "Reshape": Case(ints("s", 2, -1) + " c = Reshape(x, s)"),
    "Squeeze": Case(ints("a", 1) + " c = Squeeze(x, a)", x=(3, 1, 2)),
    "Unsqueeze": Case(ints("a", 1) + " c = Unsqueeze(x, a)"),
    "ScatterElements": Case("i = Constant<value = int64[2, 2] {2, 0, 1, 0}> () c = ScatterElements(x, i, w)", w=(2, 2)),
    "ScatterElements-add": Case(
        "i = Constant<value = int64[2, 2] {2, 0, 2, 0}> () c = ScatterElements<reduction = \"add\">(x, i, w)", w=(2, 2)),
    "ScatterND": Case("i = Constant<value = int64[3, 1] {1, 2, 1}> () c = ScatterND(x, i, w)", w=(3, 4)),
    "ScatterND-add": Case("i = Constant<value = int64[3, 1] {1, 2, 1}> () c = ScatterND<reduction = \"add\">(x, i, w)", w=(3, 4)),
    "CenterCropPad": Case(ints("s", 2, 6) + " c = CenterCropPad(x, s)"),
    "OneHot": Case("i = Constant<value = int64[2] {2, 0}> () d = Constant<value = int64 {3}> () c = OneHot(i, d, x)", x=(2,)),
    "Resize-nearest": Case("s = Constant<value = float[2] {2, 1.5}> () c = Resize(x, , s)"),
    "Resize-linear": Case("s = Constant<value = float[2] {2, 0.6}> () c = Resize<mode = \"linear\">(x, , s)"),
    "Resize-cubic": Case("s = Constant<value = float[2] {2, 1.6}> () c = Resize<mode = \"cubic\">(x, , s)"),
    "Resize-antialias": Case("s = Constant<value = float[2] {1, 0.6}> () c = Resize<mode = \"linear\", antialias = 1>(x, , s)", x=(3, 8)),
    "TensorScatter": Case("i = Constant<value = int64[2] {1, 0}> () c = TensorScatter(x, w, i)", x=(2, 1, 4, 2), w=(2, 1, 2, 2), opset=24),
    # attention and losses
    "Attention": Case("c = Attention(x, w, w)", x=(1, 2, 3, 4), w=(1, 2, 5, 4), opset=23, tolerance=1e-5),
    "RotaryEmbedding": Case("h = Cast<to = 1>(x) v = Cast<to = 1>(w) k = RotaryEmbedding(h, v, v) c = Cast<to = 11>(k)",
                            x=(1, 2, 3, 4), w=(1, 3, 2), opset=23, step=1e-2, tolerance=1e-3),
    "SoftmaxCrossEntropyLoss": Case("l = Constant<value = int64[3] {1, 0, 3}> () c = SoftmaxCrossEntropyLoss(x, l)"),
    "NegativeLogLikelihoodLoss": Case("l = Constant<value = int64[3] {1, 0, 3}> () c = NegativeLogLikelihoodLoss(x, l)"),
    "LSTM": recurrent("LSTM", 4, 'clip = 0.9, input_forget = 1', states=2),
    "LSTM-both": recurrent("LSTM", 4, 'direction = "bidirectional"', directions=2, bias=True, lengths=True, states=2),
    "LSTM-peepholes": recurrent("LSTM", 4, 'layout = 1, direction = "reverse", activations = ["HardSigmoid", "Affine", "ScaledTanh"], '
                                'activation_alpha = [0.3, 0.5, 0.8], activation_beta = [0.4, 0.1, 0.7]', bias=True, peepholes=True, states=2),
    "GRU": recurrent("GRU", 3, 'direction = "bidirectional"', directions=2, bias=True),
    "GRU-linear": recurrent("GRU", 3, 'linear_before_reset = 1, activations = ["Softsign", "LeakyRelu"]', bias=True, lengths=True),
    "RNN": recurrent("RNN", 1, 'activations = ["Softplus"]'),
    "RNN-reverse": recurrent("RNN", 1, 'direction = "reverse"', lengths=True),
    "If": Case("k = Constant<value = bool {1}> () c = If (k) <then_branch = t () => (double[3, 4] a) { a = Mul(x, w) }, "
               "else_branch = e () => (double[3, 4] b) { b = Add(x, w) }>", w=(4,)),
    "Scan": Case("z = Constant<value = double[4] {0.1, 0.2, 0.3, 0.4}> () f, c = Scan (z, x) <num_scan_inputs = 1, body = b "
                 "(double[4] s, double[4] e) => (double[4] t, double[4] o) { p = Mul(s, e) q = Add(p, w) t = Tanh(q) o = Mul(t, e) }>",
                 w=(4,)),
    "Loop": Case("n = Constant<value = int64 {3}> () k = Constant<value = bool {1}> () f, c = Loop (n, k, x) <body = b "
                 "(int64 i, bool g, double[3, 4] s) => (bool g2, double[3, 4] t, double[3, 4] o) "
                 "{ g2 = Identity(g) p = Mul(s, w) t = Tanh(p) o = Sin(t) }>", w=(4,)),
    "SkipLayerNormalization": Case("c = com.microsoft.SkipLayerNormalization(x, x, w)", x=(1, 3, 4), w=(4,)),
    "DeformConv": Case("v = Constant<value = double {0.3}> () " + ints("s", 1, 8, 3, 3) +
                       " o = Expand(v, s) c = DeformConv<kernel_shape = [2, 2]>(x, w, o)", x=(1, 1, 4, 4), w=(1, 1, 2, 2), opset=19),
    "FusedMatMul": binary(MICROSOFT + "FusedMatMul<transB = 1, alpha = 0.5>", w=(2, 4)),
    "FusedGemm": binary(MICROSOFT + "FusedGemm<transB = 1, activation = \"Relu\">", w=(2, 4)),
    "FusedConv": binary(MICROSOFT + "FusedConv<activation = \"Relu\">", x=(1, 2, 4, 4), w=(2, 2, 2, 2)),
    "FusedMatMul-rows": Case("k = Constant<value = double[4, 2] {1, 2, 0.5, -1, 3, 0.1, 1, 1}> () v = MatMul(w, k) "
                             "c = com.microsoft.FusedMatMul<alpha = 0.5>(x, v)", x=(2, 3, 3), w=(3, 4)),
    "FusedConv-group": Case("b = Constant<value = double[4] {0.1, 0.2, 0.3, 0.4}> () c = com.microsoft.FusedConv<activation = \"Tanh\", "
                            "group = 2, strides = [2, 1], dilations = [1, 2], pads = [1, 0, 0, 1]>(x, w, b)", x=(2, 4, 5, 5), w=(4, 2, 2, 3)),
}
REFUSED: dict[str, tuple[Case, str]] = {
    "Det": (Case("c = Det(x)", x=(2, 3, 3)), "Det cannot be differentiated: its lowering calls the kernel Det"),
    "DFT": (Case("a = Constant<value_int = 1> () c = DFT(x, , a)", x=(1, 4, 1), opset=20), "DFT cannot be differentiated: its lowering calls the kernel DFT"),
    "STFT": (Case("fs = Constant<value = int64 {2}> () fl = Constant<value = int64 {4}> () c = STFT(x, fs, , fl)", x=(1, 10, 1)), "STFT cannot be differentiated: its lowering calls the kernel STFT"),
    "Inverse": (Case("c = com.microsoft.Inverse(x)", x=(3, 3)), "Inverse cannot be differentiated: its lowering calls the kernel Inverse"),
    "ScatterElements-max": (Case("i = Constant<value = int64[2, 2] {2, 0, 2, 0}> () c = ScatterElements<reduction = \"max\">(x, i, w)",
                                 w=(2, 2)), "node 'c'.*: ScatterElements cannot be differentiated: its lowering stores with reduction 'max'"),
    "BiasDropout": (Case("r = Constant<value = float {0.5}> () t = Constant<value = bool {1}> () "
                         "c, m = com.microsoft.BiasDropout(x, w, , r, t)", w=(4,)), "BiasDropout cannot be differentiated: .* random numbers"),
    "Dropout-training": (Case("r = Constant<value = float {0.5}> () t = Constant<value = bool {1}> () c = Dropout(x, r, t)"),
                         "the gradient of Dropout with an input training_mode"),
}
