Places that others read as well, two places, the columns of a product, and what saves no product.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 5, 4] a, float[4, 4] w, float[4] scale) => (float[2, 5, 4] b, float[2, 4] c, float[2, 4] d, float[2, 4] e, float[2, 5] f, float[2, 4] g, float[2, 4] h)
  <int64 first = {0}, int64 second = {1}>
{
  b = MatMul (a, w)
  c = Gather <axis = 1> (b, first)
  p = MatMul (a, w)
  d = Gather <axis = 1> (p, first)
  e = Gather <axis = 1> (p, second)
  m = MatMul (a, w)
  f = Gather <axis = 2> (m, first)
  n = LayerNormalization (a, scale)
  g = Gather <axis = 1> (n, first)
  s = Exp (a)
  h = Gather <axis = 1> (s, second)
}
====
compute_selected: 0
graph 'g'
  opset 'ai.onnx' 17
  input %2 'a' float32[2, 5, 4]
  input %3 'w' float32[4, 4]
  input %4 'scale' float32[4]
  constant %0 'first' int64[] {0}
  constant %1 'second' int64[] {1}
  %5 'b' float32[2, 5, 4] = MatMul-17(%2, %3)
  %6 'c' float32[2, 4] = Gather-17(%5, %0) 'axis'=1
  %7 'p' float32[2, 5, 4] = MatMul-17(%2, %3)
  %8 'd' float32[2, 4] = Gather-17(%7, %0) 'axis'=1
  %9 'e' float32[2, 4] = Gather-17(%7, %1) 'axis'=1
  %10 'm' float32[2, 5, 4] = MatMul-17(%2, %3)
  %11 'f' float32[2, 5] = Gather-17(%10, %0) 'axis'=2
  %12 'n' float32[2, 5, 4] = LayerNormalization-17(%2, %4)
  %13 'g' float32[2, 4] = Gather-17(%12, %0) 'axis'=1
  %14 's' float32[2, 5, 4] = Exp-17(%2)
  %15 'h' float32[2, 4] = Gather-17(%14, %1) 'axis'=1
  output %5 'b'
  output %6 'c'
  output %8 'd'
  output %9 'e'
  output %11 'f'
  output %13 'g'
  output %15 'h'
