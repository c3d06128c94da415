An input of its own, an output, two readers, a sum, weights that are computed: products of their own.
for: cuda
----
<ir_version: 8, opset_import: ["": 24]>
g (float[3, 4] x, float[3, 4] z, float[3, 2] r, float[4, 2] v) => (float[3, 2] a, float[3, 2] b, float[3, 2] pc, float[3, 2] d, float[3, 2] e, float[3, 2] f)
  <float[4, 2] wa = {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}, float[4, 2] wb = {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}, float[4, 2] wc = {1, 1, 3, -2, 0.25, 2, 1, -0.5}, float[4, 2] wd = {1, -0.5, 1, -1, -2, -0.5, -2, -2}, float[4, 2] we = {-2, 1, 1, -2, -1, 0.25, -0.5, 1}>
{
  pa = MatMul (x, wa)
  qa = MatMul (z, wb)
  ga = Swish (pa)
  a = Mul (ga, qa)
  pb = MatMul (x, wb)
  pc = MatMul (x, wc)
  gc = Sigmoid (pc)
  b = Mul (gc, pb)
  pd = MatMul (x, wd)
  d = Mul (pd, pd)
  pe = MatMul (x, we)
  se = Add (pe, r)
  qe = MatMul (x, v)
  ge = Sigmoid (qe)
  e = Mul (se, ge)
  pf = MatMul (x, wa)
  gf = Sigmoid (pf)
  f = Mul (gf, r)
}
====
join_gates: 0
graph 'g'
  opset 'ai.onnx' 24
  input %5 'x' float32[3, 4]
  input %6 'z' float32[3, 4]
  input %7 'r' float32[3, 2]
  input %8 'v' float32[4, 2]
  constant %0 'wa' float32[4, 2] {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}
  constant %1 'wb' float32[4, 2] {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}
  constant %2 'wc' float32[4, 2] {1, 1, 3, -2, 0.25, 2, 1, -0.5}
  constant %3 'wd' float32[4, 2] {1, -0.5, 1, -1, -2, -0.5, -2, -2}
  constant %4 'we' float32[4, 2] {-2, 1, 1, -2, -1, 0.25, -0.5, 1}
  %9 'pa' float32[3, 2] = MatMul-24(%5, %0)
  %10 'qa' float32[3, 2] = MatMul-24(%6, %1)
  %11 'ga' float32[3, 2] = Swish-24(%9)
  %12 'a' float32[3, 2] = Mul-24(%11, %10)
  %13 'pb' float32[3, 2] = MatMul-24(%5, %1)
  %14 'pc' float32[3, 2] = MatMul-24(%5, %2)
  %15 'gc' float32[3, 2] = Sigmoid-24(%14)
  %16 'b' float32[3, 2] = Mul-24(%15, %13)
  %17 'pd' float32[3, 2] = MatMul-24(%5, %3)
  %18 'd' float32[3, 2] = Mul-24(%17, %17)
  %19 'pe' float32[3, 2] = MatMul-24(%5, %4)
  %20 'se' float32[3, 2] = Add-24(%19, %7)
  %21 'qe' float32[3, 2] = MatMul-24(%5, %8)
  %22 'ge' float32[3, 2] = Sigmoid-24(%21)
  %23 'e' float32[3, 2] = Mul-24(%20, %22)
  %24 'pf' float32[3, 2] = MatMul-24(%5, %0)
  %25 'gf' float32[3, 2] = Sigmoid-24(%24)
  %26 'f' float32[3, 2] = Mul-24(%25, %7)
  output %12 'a'
  output %16 'b'
  output %14 'pc'
  output %18 'd'
  output %23 'e'
  output %26 'f'
