The weights of the convolution are scaled and its bias shifted.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 1, 4, 4] x) => (float[N, 2, 3, 3] y)
  <float[2, 1, 2, 2] w = {1, -2, 3, -4, 0.5, 0.25, -0.5, 1}, float[2] b = {0.5, -1},
   float[2] scale = {2, 0.5}, float[2] shift = {1, -1}, float[2] mean = {0.1, 0.2}, float[2] variance = {4, 0.25}>
{
  c = Conv (x, w, b)
  y = BatchNormalization (c, scale, shift, mean, variance)
}
====
fold_batch_norm: 1
graph 'g'
  opset 'ai.onnx' 17
  input %6 'x' float32[N, 1, 4, 4]
  constant %0 'w' float32[2, 1, 2, 2] {1, -2, 3, -4, 0.5, 0.25, -0.5, 1}
  constant %1 'b' float32[2] {0.5, -1}
  constant %2 'scale' float32[2] {2, 0.5}
  constant %3 'shift' float32[2] {1, -1}
  constant %4 'mean' float32[2] {0.1, 0.2}
  constant %5 'variance' float32[2] {4, 0.25}
  constant %9 '.weights*scale' float32[2, 1, 2, 2] {0.999999, -2, 3, -3.99999, 0.49999, 0.249995, -0.49999, 0.99998}
  constant %10 '.bias+shift' float32[2] {1.4, -2.19998}
  %8 'y' float32[N, 2, 3, 3] = Conv-17(%6, %9, %10)
  output %8 'y'
