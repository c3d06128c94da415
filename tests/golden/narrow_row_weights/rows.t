Weights that one row is multiplied by, or a number of rows that is not known, are bfloat16 behind a Cast, turned ones, too. Those of
two rows stay what they are.
tolerance: 2e-2
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 3] x, float[2, 3] z, float[n, 3] u) => (float[1, 2] a, float[2, 2] b, float[n, 2] c, float[1, 3] d)
  <float[3, 2] w = {1, 0.5, -1, 1.001, 0.25, 2}, float[2, 3] v = {1, 2, 1.001, 0.5, -1, 3}, float[2] bias = {1, 2}>
{
  a = Gemm (x, w, bias)
  b = MatMul (z, w)
  t = Transpose <perm = [1, 0]> (v)
  c = MatMul (u, t)
  d = MatMul (a, v)
}
====
narrow_row_weights: 3
graph 'g'
  opset 'ai.onnx' 17
  input %3 'x' float32[1, 3]
  input %4 'z' float32[2, 3]
  input %5 'u' float32[n, 3]
  constant %0 'w' float32[3, 2] {1, 0.5, -1, 1.001, 0.25, 2}
  constant %1 'v' float32[2, 3] {1, 2, 1.001, 0.5, -1, 3}
  constant %2 'bias' float32[2] {1, 2}
  constant %11 'w' bfloat16[3, 2] {1, 0.5, -1, 1, 0.25, 2}
  constant %13 'v' bfloat16[2, 3] {1, 2, 1, 0.5, -1, 3}
  constant %16 'v' bfloat16[2, 3] {1, 2, 1, 0.5, -1, 3}
  %12 'w' float32[3, 2] = Cast-13(%11) 'to'=1 # 'w/as_float32'
  %6 'a' float32[1, 2] = Gemm-17(%3, %12, %2)
  %7 'b' float32[2, 2] = MatMul-17(%4, %0)
  %14 't' bfloat16[3, 2] = Transpose-17(%13) 'perm'=[1, 0]
  %15 't' float32[3, 2] = Cast-13(%14) 'to'=1 # 't/as_float32'
  %9 'c' float32[n, 2] = MatMul-17(%5, %15)
  %17 'v' float32[2, 3] = Cast-13(%16) 'to'=1 # 'v/as_float32'
  %10 'd' float32[1, 3] = MatMul-17(%6, %17)
  output %6 'a'
  output %7 'b'
  output %9 'c'
  output %10 'd'
