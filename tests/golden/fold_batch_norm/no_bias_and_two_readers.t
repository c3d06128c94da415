A convolution without bias gets one; where another node reads the convolution, both stay.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 1, 4, 4] x) => (float[N, 2, 4, 4] y, float[N, 2, 4, 4] z, float[N, 2, 4, 4] other)
  <float[2, 1, 1, 1] w = {1, -2}, float[2] scale = {2, 0.5}, float[2] shift = {1, -1},
   float[2] mean = {0.1, 0.2}, float[2] variance = {4, 0.25}>
{
  c = Conv (x, w)
  y = BatchNormalization <epsilon = 0.001> (c, scale, shift, mean, variance)
  d = Conv <strides = [1, 1]> (x, w)
  z = BatchNormalization (d, scale, shift, mean, variance)
  other = Relu (d)
}
====
fold_batch_norm: 1
graph 'g'
  opset 'ai.onnx' 17
  input %5 'x' float32[N, 1, 4, 4]
  constant %0 'w' float32[2, 1, 1, 1] {1, -2}
  constant %1 'scale' float32[2] {2, 0.5}
  constant %2 'shift' float32[2] {1, -1}
  constant %3 'mean' float32[2] {0.1, 0.2}
  constant %4 'variance' float32[2] {4, 0.25}
  constant %11 '.weights*scale' float32[2, 1, 1, 1] {0.999875, -1.99601}
  constant %12 '.bias+shift' float32[2] {0.900012, -1.1996}
  %7 'y' float32[N, 2, 4, 4] = Conv-17(%5, %11, %12)
  %8 'd' float32[N, 2, 4, 4] = Conv-17(%5, %0) 'strides'=[1, 1]
  %9 'z' float32[N, 2, 4, 4] = BatchNormalization-17(%8, %1, %2, %3, %4)
  %10 'other' float32[N, 2, 4, 4] = Relu-17(%8)
  output %7 'y'
  output %9 'z'
  output %10 'other'
