Integer weights become floats, and what follows from them too; activations keep their DequantizeLinear.
----
<ir_version: 8, opset_import: ["": 17]>
g (int32[2, 3] x) => (float[2, 2] y)
  <int8[2, 3] w = {1, -2, 3, 4, 5, -6}, float s = {0.5}>
{
  f = DequantizeLinear (w, s)
  t = Transpose <perm = [1, 0]> (f)
  a = DequantizeLinear (x, s)
  y = MatMul (a, t)
}
====
dequantize_weights: 2
graph 'g'
  opset 'ai.onnx' 17
  input %2 'x' int32[2, 3]
  constant %0 'w' int8[2, 3] {1, -2, 3, 4, 5, -6}
  constant %1 's' float32[] {0.5}
  constant %3 'f' float32[2, 3] {0.5, -1, 1.5, 2, 2.5, -3}
  constant %4 't' float32[3, 2] {0.5, 2, -1, 2.5, 1.5, -3}
  %5 'a' float32[2, 3] = DequantizeLinear-17(%2, %1)
  %6 'y' float32[2, 2] = MatMul-17(%5, %4)
  output %6 'y'
