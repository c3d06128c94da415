Weights that two nodes read, results that two nodes read, and constants over other dimensions stay.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 2, 2] x) => (float[1, 2, 2, 2] y, float[1, 2, 2, 2] z, float[1, 2, 2, 2] u)
  <float[2, 2, 1, 1] w = {1, -2, 0.5, 3}, float[2, 2, 1, 1] v = {1, 2, 3, 4}, float two = {2}, float[2] row = {1, 2}>
{
  a = Conv (x, w)
  y = Mul (a, two)
  b = Conv <strides = [1, 1]> (x, w)
  z = Mul (b, row)
  c = Conv (x, v)
  d = Add (c, row)
  u = Mul (c, d)
}
====
fold_scale: 0
graph 'g'
  opset 'ai.onnx' 17
  input %4 'x' float32[1, 2, 2, 2]
  constant %0 'w' float32[2, 2, 1, 1] {1, -2, 0.5, 3}
  constant %1 'v' float32[2, 2, 1, 1] {1, 2, 3, 4}
  constant %2 'two' float32[] {2}
  constant %3 'row' float32[2] {1, 2}
  %5 'a' float32[1, 2, 2, 2] = Conv-17(%4, %0)
  %6 'y' float32[1, 2, 2, 2] = Mul-17(%5, %2)
  %7 'b' float32[1, 2, 2, 2] = Conv-17(%4, %0) 'strides'=[1, 1]
  %8 'z' float32[1, 2, 2, 2] = Mul-17(%7, %3)
  %9 'c' float32[1, 2, 2, 2] = Conv-17(%4, %1)
  %10 'd' float32[1, 2, 2, 2] = Add-17(%9, %3)
  %11 'u' float32[1, 2, 2, 2] = Mul-17(%9, %10)
  output %6 'y'
  output %8 'z'
  output %11 'u'
