What the library goes on with, a residual, a scaled Gemm, an output, another input: products of their own.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[3, 4] x, float[3, 4] z, float[3, 2] r) => (float[3, 2] a, float[3, 2] b, float[1, 3, 2] c, float[1, 3, 2] d, float[3, 2] e, float[1, 3, 2] f, float[1, 3, 2] h)
  <float[4, 2] wa = {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}, float[4, 2] wb = {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}, float[4, 2] wc = {1, 1, 3, -2, 0.25, 2, 1, -0.5}, float[4, 2] wd = {1, -0.5, 1, -1, -2, -0.5, -2, -2}, float[4, 2] we = {-2, 1, 1, -2, -1, 0.25, -0.5, 1}, float[4, 2] wf = {-0.5, -1, 2, -2, 3, -0.5, -0.5, -0.5}, float[4, 2] wh = {-1, 3, 0.25, 0.25, 0.25, 3, 1, 0.25}, int64[3] s = {1, 3, 2}>
{
  gate = MatMul (x, wa)
  open = Sigmoid (gate)
  up = MatMul (x, wb)
  a = Mul (open, up)
  b = Identity (a)
  pc = MatMul (x, wc)
  sc = Add (pc, r)
  c = Reshape (sc, s)
  pd = Gemm <alpha = 0.5> (x, wd)
  d = Reshape (pd, s)
  e = MatMul (x, we)
  pf = MatMul (z, wf)
  f = Reshape (pf, s)
  ph = MatMul (x, wh)
  h = Reshape (ph, s)
}
====
join_products: 0
graph 'g'
  opset 'ai.onnx' 17
  input %8 'x' float32[3, 4]
  input %9 'z' float32[3, 4]
  input %10 'r' float32[3, 2]
  constant %0 'wa' float32[4, 2] {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}
  constant %1 'wb' float32[4, 2] {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}
  constant %2 'wc' float32[4, 2] {1, 1, 3, -2, 0.25, 2, 1, -0.5}
  constant %3 'wd' float32[4, 2] {1, -0.5, 1, -1, -2, -0.5, -2, -2}
  constant %4 'we' float32[4, 2] {-2, 1, 1, -2, -1, 0.25, -0.5, 1}
  constant %5 'wf' float32[4, 2] {-0.5, -1, 2, -2, 3, -0.5, -0.5, -0.5}
  constant %6 'wh' float32[4, 2] {-1, 3, 0.25, 0.25, 0.25, 3, 1, 0.25}
  constant %7 's' int64[3] {1, 3, 2}
  %11 'gate' float32[3, 2] = MatMul-17(%8, %0)
  %12 'open' float32[3, 2] = Sigmoid-17(%11)
  %13 'up' float32[3, 2] = MatMul-17(%8, %1)
  %14 'a' float32[3, 2] = Mul-17(%12, %13)
  %15 'b' float32[3, 2] = Identity-17(%14)
  %16 'pc' float32[3, 2] = MatMul-17(%8, %2)
  %17 'sc' float32[3, 2] = Add-17(%16, %10)
  %18 'c' float32[1, 3, 2] = Reshape-17(%17, %7)
  %19 'pd' float32[3, 2] = Gemm-17(%8, %3) 'alpha'=0.5f
  %20 'd' float32[1, 3, 2] = Reshape-17(%19, %7)
  %21 'e' float32[3, 2] = MatMul-17(%8, %4)
  %22 'pf' float32[3, 2] = MatMul-17(%9, %5)
  %23 'f' float32[1, 3, 2] = Reshape-17(%22, %7)
  %24 'ph' float32[3, 2] = MatMul-17(%8, %6)
  %25 'h' float32[1, 3, 2] = Reshape-17(%24, %7)
  output %14 'a'
  output %15 'b'
  output %18 'c'
  output %20 'd'
  output %21 'e'
  output %23 'f'
  output %25 'h'
