Zeros around the image become padding of the convolution: two Pads in a row, negative axes, beside padding that it has, and
for each of two readers; a third reader keeps the Pad.
----
<ir_version: 8, opset_import: ["": 18]>
g (float[N, 2, H, W] x, float[3, 2, 3, 3] w) => (float[N, 3, A, B] y, float[N, 3, C, D] z, float[N, 2, E, F] other)
  <int64[8] all = {0, 0, 0, 1, 0, 0, 1, 0}, int64[4] last = {0, 1, 1, 0}, int64[2] axes = {-2, -1},
   float zero = {0}>
{
  a = Pad (x, all)
  b = Pad (a, last, zero, axes)
  y = Conv <strides = [2, 2], auto_pad = "VALID"> (b, w)
  z = Conv <pads = [1, 0, 1, 0], dilations = [2, 2]> (a, w)
  other = Relu (a)
}
====
fold_pads: 3
graph 'g'
  opset 'ai.onnx' 18
  input %4 'x' float32[N, 2, H, W]
  input %5 'w' float32[3, 2, 3, 3]
  constant %0 'all' int64[8] {0, 0, 0, 1, 0, 0, 1, 0}
  constant %1 'last' int64[4] {0, 1, 1, 0}
  constant %2 'axes' int64[2] {-2, -1}
  constant %3 'zero' float32[] {0}
  %6 'a' float32[N, 2, u, u.1] = Pad-18(%4, %0)
  %8 'y' float32[u.2, 3, u.5, u.6] = Conv-18(%4, %5) 'pads'=[0, 2, 2, 0] 'strides'=[2, 2]
  %9 'z' float32[N, 3, u.7, u.8] = Conv-18(%4, %5) 'dilations'=[2, 2] 'pads'=[1, 1, 2, 0]
  %10 'other' float32[N, 2, u, u.1] = Relu-18(%6)
  output %8 'y'
  output %9 'z'
  output %10 'other'
