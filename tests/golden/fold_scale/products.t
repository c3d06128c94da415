Gemm takes scale and shift. MatMul takes the scale; its bias stays an Add with another constant.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[4, 2] x, float[N, 3, 2] s) => (float[4, 3] y, float[N, 3, 2] z)
  <float[3, 2] w = {1, -2, 0.5, 3, 2, 1}, float[3] bias = {1, 2, 3}, float[1, 3] scale = {2, 0.5, -1},
   float[2, 2] v = {1, 2, 3, 4}, float[2] b = {10, 20}, float factor = {0.125}, float[2] more = {1, 2}>
{
  a = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, w, bias)
  c = Mul (a, scale)
  y = Add (c, bias)
  d = MatMul (s, v)
  e = Add (b, d)
  f = Mul (e, factor)
  z = Add (f, more)
}
====
fold_scale: 4
graph 'g'
  opset 'ai.onnx' 17
  input %7 'x' float32[4, 2]
  input %8 's' float32[N, 3, 2]
  constant %0 'w' float32[3, 2] {1, -2, 0.5, 3, 2, 1}
  constant %1 'bias' float32[3] {1, 2, 3}
  constant %2 'scale' float32[1, 3] {2, 0.5, -1}
  constant %3 'v' float32[2, 2] {1, 2, 3, 4}
  constant %4 'b' float32[2] {10, 20}
  constant %5 'factor' float32[] {0.125}
  constant %6 'more' float32[2] {1, 2}
  constant %16 'w scaled' float32[3, 2] {2, -4, 0.25, 1.5, -2, -1}
  constant %17 'w bias' float32[3] {4, 2, -6}
  constant %18 'w scaled bias' float32[3] {5, 4, -3}
  constant %19 'v scaled' float32[2, 2] {0.125, 0.25, 0.375, 0.5}
  constant %20 'v bias' float32[2] {1.25, 2.5}
  constant %21 'v scaled bias' float32[2] {2.25, 4.5}
  %11 'y' float32[4, 3] = Gemm-17(%7, %16, %18) 'alpha'=0.5f 'transB'=1
  %12 'd' float32[N, 3, 2] = MatMul-17(%8, %19)
  %15 'z' float32[N, 3, 2] = Add-17(%12, %21)
  output %11 'y'
  output %15 'z'
