Bias and activation between a convolution's Transpose and the next one's: all Transposes in between go.
pass: sink_transposes
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4, 4, 2] x) => (float[N, 4, 4, 2] y)
  <float[2, 2, 1, 1] w = {1, -2, 0.5, 3}, float[2] bias = {0.25, -1}, float six = {6}, float zero = {0}>
{
  a = Transpose <perm = [0, 3, 1, 2]> (x)
  b = Conv (a, w)
  c = Transpose <perm = [0, 2, 3, 1]> (b)
  d = Add (c, bias)
  e = Clip (d, zero, six)
  f = Transpose <perm = [0, 3, 1, 2]> (e)
  h = Conv (f, w)
  y = Transpose <perm = [0, 2, 3, 1]> (h)
}
====
sink_transposes: 2
graph 'g'
  opset 'ai.onnx' 17
  input %4 'x' float32[N, 4, 4, 2]
  constant %0 'w' float32[2, 2, 1, 1] {1, -2, 0.5, 3}
  constant %1 'bias' float32[2] {0.25, -1}
  constant %2 'six' float32[] {6}
  constant %3 'zero' float32[] {0}
  constant %13 'bias transposed' float32[1, 2, 1, 1] {0.25, -1}
  %5 'a' float32[N, 2, 4, 4] = Transpose-17(%4) 'perm'=[0, 3, 1, 2]
  %6 'b' float32[N, 2, 4, 4] = Conv-17(%5, %0)
  %14 'd before transposition' float32[N, 2, 4, 4] = Add-17(%6, %13)
  %15 'e before transposition' float32[N, 2, 4, 4] = Clip-17(%14, %3, %2)
  %11 'h' float32[N, 2, 4, 4] = Conv-17(%15, %0)
  %12 'y' float32[N, 4, 4, 2] = Transpose-17(%11) 'perm'=[0, 2, 3, 1]
  output %12 'y'
