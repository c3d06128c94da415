A product times the activation of another one of the same input, with biases or without, in either order, is one product with it. A half in memory stays so.
for: cuda
tolerance: 2e-5
----
<ir_version: 8, opset_import: ["": 24]>
g (float[3, 4] x, float[3, 4] z) => (float[3, 2] a, float[3, 2] b, float[3, 2] c)
  <float[4, 2] wa = {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}, float[4, 2] wb = {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}, float[2] ba = {0.5, -1}, float[2] bb = {2, 0.25},
   float[4, 2] wc = {1, 1, 3, -2, 0.25, 2, 1, -0.5}, float[4, 2] wd = {1, -0.5, 1, -1, -2, -0.5, -2, -2}, float16[4, 2] we = {15360, 16384, 48128, 14336, 15360, 49152, 16896, 15360}, float16[4, 2] wf = {16384, 15360, 14336, 47104, 15360, 16896, 48128, 16384}>
{
  ga = MatMul (x, wa)
  gs = Add (ga, ba)
  gate = Swish <alpha = 1.0> (gs)
  ub = MatMul (x, wb)
  us = Add (ub, bb)
  a = Mul (gate, us)
  uc = MatMul (x, wc)
  gd = MatMul (x, wd)
  open = Gelu <approximate = "tanh"> (gd)
  b = Mul (uc, open)
  ce = Cast <to = 1> (we)
  cf = Cast <to = 1> (wf)
  pe = MatMul (z, ce)
  pf = MatMul (z, cf)
  c = Mul (pe, pf)
}
====
join_gates: 6
graph 'g'
  opset 'ai.onnx' 24
  input %8 'x' float32[3, 4]
  input %9 'z' float32[3, 4]
  constant %0 'wa' float32[4, 2] {2, 0.25, -2, -0.5, 3, -2, 0.25, -1}
  constant %1 'wb' float32[4, 2] {-2, -0.5, 0.25, 3, 0.25, 3, -2, -2}
  constant %2 'ba' float32[2] {0.5, -1}
  constant %3 'bb' float32[2] {2, 0.25}
  constant %4 'wc' float32[4, 2] {1, 1, 3, -2, 0.25, 2, 1, -0.5}
  constant %5 'wd' float32[4, 2] {1, -0.5, 1, -1, -2, -0.5, -2, -2}
  constant %6 'we' float16[4, 2] {1, 2, -1, 0.5, 1, -2, 3, 1}
  constant %7 'wf' float16[4, 2] {2, 1, 0.5, -0.5, 1, 3, -1, 2}
  constant %25 '' float32[4, 4]
  constant %26 '' float32[4] {0.5, -1, 2, 0.25}
  constant %29 '' int64[2] {2, 2}
  constant %30 '' float32[4, 4]
  constant %32 '' int64[2] {2, 2}
  constant %33 '' float16[4, 4]
  constant %36 '' int64[2] {2, 2}
  %27 'gs and more' float32[3, 4] = MatMul-13(%8, %25)
  %28 'gs and more' float32[3, 4] = Add-14(%27, %26)
  %11 'gs' float32[3, 2], %14 'us' float32[3, 2] = Split-13(%28, %29) 'axis'=1
  %12 'gate' float32[3, 2] = Swish-24(%11) 'alpha'=1f
  %15 'a' float32[3, 2] = Mul-24(%12, %14)
  %31 'uc and more' float32[3, 4] = MatMul-13(%8, %30)
  %16 'uc' float32[3, 2], %17 'gd' float32[3, 2] = Split-13(%31, %32) 'axis'=1
  %18 'open' float32[3, 2] = Gelu-24(%17) 'approximate'='tanh'
  %19 'b' float32[3, 2] = Mul-24(%16, %18)
  %34 '' float32[4, 4] = Cast-13(%33) 'to'=1
  %35 'pe and more' float32[3, 4] = MatMul-13(%9, %34)
  %22 'pe' float32[3, 2], %23 'pf' float32[3, 2] = Split-13(%35, %36) 'axis'=1
  %24 'c' float32[3, 2] = Mul-24(%22, %23)
  output %15 'a'
  output %19 'b'
  output %24 'c'
