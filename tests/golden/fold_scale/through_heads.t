The scale of an attention's queries passes the split into heads on its way to the projection's weights.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[B, S, 4] x) => (float[B, 2, S, 2] y)
  <float[4, 4] w = {1, 2, 3, 4, -1, -2, -3, -4, 0.5, 1.5, 2.5, 3.5, 1, 0, 1, 0}, float[4] b = {1, 2, 3, 4},
   float scale = {0.5}, int64[4] heads = {0, 0, 2, 2}>
{
  a = MatMul (x, w)
  c = Add (a, b)
  d = Reshape (c, heads)
  e = Transpose <perm = [0, 2, 1, 3]> (d)
  y = Mul (e, scale)
}
====
fold_scale: 1
graph 'g'
  opset 'ai.onnx' 17
  input %4 'x' float32[B, S, 4]
  constant %0 'w' float32[4, 4]
  constant %1 'b' float32[4] {1, 2, 3, 4}
  constant %2 'scale' float32[] {0.5}
  constant %3 'heads' int64[4] {0, 0, 2, 2}
  constant %10 'w scaled' float32[4, 4]
  constant %11 'w bias' float32[4] {0.5, 1, 1.5, 2}
  %5 'a' float32[B, S, 4] = MatMul-17(%4, %10)
  %6 'c' float32[B, S, 4] = Add-17(%5, %11)
  %7 'd' float32[B, S, 2, 2] = Reshape-17(%6, %3)
  %8 'e' float32[B, 2, S, 2] = Transpose-17(%7) 'perm'=[0, 2, 1, 3]
  %9 'y' float32[B, 2, S, 2] = Identity-17(%8)
  output %9 'y'
