A MatMul over DequantizeLinear is the product of the integers, scaled; where an operand is no quantised tensor it stays.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[2, 2] y, float[2, 2] z)
  <int8[3, 2] w = {1, -2, 3, 4, 5, -6}, float s = {0.5}, float sx = {0.25}, uint8 zx = {3}, int8 zw = {0}>
{
  q = QuantizeLinear (x, sx, zx)
  a = DequantizeLinear (q, sx, zx)
  f = DequantizeLinear (w, s, zw)
  y = MatMul (a, f)
  z = MatMul (x, f)
}
====
multiply_integers: 1
graph 'g'
  opset 'ai.onnx' 17
  input %5 'x' float32[2, 3]
  constant %0 'w' int8[3, 2] {1, -2, 3, 4, 5, -6}
  constant %1 's' float32[] {0.5}
  constant %2 'sx' float32[] {0.25}
  constant %3 'zx' uint8[] {3}
  constant %4 'zw' int8[] {0}
  constant %11 '.scale' float32[] {0.125}
  %6 'q' uint8[2, 3] = QuantizeLinear-17(%5, %2, %3)
  %8 'f' float32[3, 2] = DequantizeLinear-17(%0, %1, %4)
  %12 'y.sum' int32[2, 2] = MatMulInteger-10(%6, %0, %3, %4)
  %13 'y.float' float32[2, 2] = Cast-13(%12) 'to'=1
  %9 'y' float32[2, 2] = Mul-13(%13, %11)
  %10 'z' float32[2, 2] = MatMul-17(%5, %8)
  output %9 'y'
  output %10 'z'
