What the library goes on with, a residual, a scaled Gemm, an output, another input, many rows: products of their own.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[3, 4] x, float[3, 4] z, float[3, 2] r, float[2, 17, 2] m) => (float[3, 2] a, float[3, 2] b, float[1, 3, 2] c, float[1, 3, 2] d, float[3, 2] e, float[1, 3, 2] f, float[1, 3, 2] h, float[34, 1, 1] i, float[34, 1, 1] j)
  <float[4, 2] wa = {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}, float[4, 2] wb = {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}, float[4, 2] wc = {1, 1, 3, -2, 0.25, 2, 1, -0.5}, float[4, 2] wd = {1, -0.5, 1, -1, -2, -0.5, -2, -2}, float[4, 2] we = {-2, 1, 1, -2, -1, 0.25, -0.5, 1}, float[4, 2] wf = {-0.5, -1, 2, -2, 3, -0.5, -0.5, -0.5}, float[4, 2] wh = {-1, 3, 0.25, 0.25, 0.25, 3, 1, 0.25}, int64[3] s = {1, 3, 2}, float[2, 1] w64 = {1, 2}, float[2, 1] v64 = {3, 4}, int64[3] t = {34, 1, 1}>
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
  pi = MatMul (m, w64)
  i = Reshape (pi, t)
  pj = MatMul (m, v64)
  j = Reshape (pj, t)
}
====
join_products: 0
graph 'g'
  opset 'ai.onnx' 17
  input %11 'x' float32[3, 4]
  input %12 'z' float32[3, 4]
  input %13 'r' float32[3, 2]
  input %14 'm' float32[2, 17, 2]
  constant %0 'wa' float32[4, 2] {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}
  constant %1 'wb' float32[4, 2] {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}
  constant %2 'wc' float32[4, 2] {1, 1, 3, -2, 0.25, 2, 1, -0.5}
  constant %3 'wd' float32[4, 2] {1, -0.5, 1, -1, -2, -0.5, -2, -2}
  constant %4 'we' float32[4, 2] {-2, 1, 1, -2, -1, 0.25, -0.5, 1}
  constant %5 'wf' float32[4, 2] {-0.5, -1, 2, -2, 3, -0.5, -0.5, -0.5}
  constant %6 'wh' float32[4, 2] {-1, 3, 0.25, 0.25, 0.25, 3, 1, 0.25}
  constant %7 's' int64[3] {1, 3, 2}
  constant %8 'w64' float32[2, 1] {1, 2}
  constant %9 'v64' float32[2, 1] {3, 4}
  constant %10 't' int64[3] {34, 1, 1}
  %15 'gate' float32[3, 2] = MatMul-17(%11, %0)
  %16 'open' float32[3, 2] = Sigmoid-17(%15)
  %17 'up' float32[3, 2] = MatMul-17(%11, %1)
  %18 'a' float32[3, 2] = Mul-17(%16, %17)
  %19 'b' float32[3, 2] = Identity-17(%18)
  %20 'pc' float32[3, 2] = MatMul-17(%11, %2)
  %21 'sc' float32[3, 2] = Add-17(%20, %13)
  %22 'c' float32[1, 3, 2] = Reshape-17(%21, %7)
  %23 'pd' float32[3, 2] = Gemm-17(%11, %3) 'alpha'=0.5f
  %24 'd' float32[1, 3, 2] = Reshape-17(%23, %7)
  %25 'e' float32[3, 2] = MatMul-17(%11, %4)
  %26 'pf' float32[3, 2] = MatMul-17(%12, %5)
  %27 'f' float32[1, 3, 2] = Reshape-17(%26, %7)
  %28 'ph' float32[3, 2] = MatMul-17(%11, %6)
  %29 'h' float32[1, 3, 2] = Reshape-17(%28, %7)
  %30 'pi' float32[2, 17, 1] = MatMul-17(%14, %8)
  %31 'i' float32[34, 1, 1] = Reshape-17(%30, %10)
  %32 'pj' float32[2, 17, 1] = MatMul-17(%14, %9)
  %33 'j' float32[34, 1, 1] = Reshape-17(%32, %10)
  output %18 'a'
  output %19 'b'
  output %22 'c'
  output %24 'd'
  output %25 'e'
  output %27 'f'
  output %29 'h'
  output %31 'i'
  output %33 'j'
