Queries, keys and values of one input become one product: with biases of all, of some or of none, and as Gemm with turned weights.
tolerance: 2e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 3, 6] x, float[5, 6] z) => (float[1, 3, 2, 2] q, float[1, 3, 1, 3] k, float[1, 3, 2, 1] v, float[1, 3, 3, 1] a, float[1, 3, 1, 2] b, float[5, 2, 1] c, float[5, 3, 1] d)
  <float[6, 4] wq = {-1, 1, 1, -1, -0.5, 1, 0.25, 2, 1, -2, 1, -2, 3, 0.25, -0.5, 1, -1, -1, 2, 0.25, 1, 3, 1, 0.25}, float[6, 3] wk = {0.25, 2, 3, -1, -1, 2, -1, 3, 1, 0.25, 2, -2, 2, 3, -2, -1, 3, 1}, float[6, 2] wv = {-2, -0.5, 3, -2, 3, 3, -0.5, 0.25, 1, 2, 0.25, 2}, float[4] bq = {0.5, -1, 2, 3}, float[2] bv = {1, -2},
   float[6, 3] wa = {3, 0.25, 0.25, 2, 3, 1, 0.25, -1, -0.5, -2, -2, -1, 0.25, -1, -0.5, 2, 0.25, 3}, float[6, 2] wb = {2, 3, -0.5, 0.25, 1, 3, 0.25, 1, -0.5, 1, 1, 0.25}, float[2, 6] wc = {1, -1, -0.5, 2, -2, 3, -0.5, 1, 2, 2, -1, 2}, float[3, 6] wd = {3, -0.5, 1, 1, 1, -2, 2, 2, -1, 2, 3, 1, -0.5, -0.5, -2, -2, 0.25, 3}, float[3] bd = {3, 2, 1},
   int64[4] hq = {1, -1, 2, 2}, int64[4] hk = {1, -1, 1, 3}, int64[4] hv = {1, -1, 2, 1}, int64[4] ha = {1, -1, 3, 1}, int64[4] hb = {1, -1, 1, 2},
   int64[3] hc = {5, 2, 1}, int64[3] hd = {5, 3, 1}>
{
  pq = MatMul (x, wq)
  sq = Add (pq, bq)
  q = Reshape (sq, hq)
  pk = MatMul (x, wk)
  k = Reshape (pk, hk)
  pv = MatMul (x, wv)
  sv = Add (bv, pv)
  v = Reshape (sv, hv)
  y = Relu (x)
  pa = MatMul (y, wa)
  pb = MatMul (y, wb)
  b = Reshape (pb, hb)
  a = Reshape (pa, ha)
  pc = Gemm <transB = 1> (z, wc)
  c = Reshape (pc, hc)
  pd = Gemm <transB = 1> (z, wd, bd)
  d = Reshape (pd, hd)
}
====
join_products: 7
graph 'g'
  opset 'ai.onnx' 17
  input %17 'x' float32[1, 3, 6]
  input %18 'z' float32[5, 6]
  constant %0 'wq' float32[6, 4]
  constant %1 'wk' float32[6, 3]
  constant %2 'wv' float32[6, 2]
  constant %3 'bq' float32[4] {0.5, -1, 2, 3}
  constant %4 'bv' float32[2] {1, -2}
  constant %5 'wa' float32[6, 3]
  constant %6 'wb' float32[6, 2]
  constant %7 'wc' float32[2, 6]
  constant %8 'wd' float32[3, 6]
  constant %9 'bd' float32[3] {3, 2, 1}
  constant %10 'hq' int64[4] {1, -1, 2, 2}
  constant %11 'hk' int64[4] {1, -1, 1, 3}
  constant %12 'hv' int64[4] {1, -1, 2, 1}
  constant %13 'ha' int64[4] {1, -1, 3, 1}
  constant %14 'hb' int64[4] {1, -1, 1, 2}
  constant %15 'hc' int64[3] {5, 2, 1}
  constant %16 'hd' int64[3] {5, 3, 1}
  constant %36 '' float32[6, 9]
  constant %37 '' float32[9]
  constant %40 '' int64[3] {4, 3, 2}
  constant %41 '' float32[5, 6]
  constant %42 '' float32[5] {0, 0, 3, 2, 1}
  constant %44 '' int64[2] {2, 3}
  constant %45 '' float32[6, 5]
  constant %47 '' int64[2] {3, 2}
  %38 'sq and more' float32[1, 3, 9] = MatMul-13(%17, %36)
  %39 'sq and more' float32[1, 3, 9] = Add-14(%38, %37)
  %20 'sq' float32[1, 3, 4], %22 'pk' float32[1, 3, 3], %25 'sv' float32[1, 3, 2] = Split-13(%39, %40) 'axis'=2
  %21 'q' float32[1, 3, 2, 2] = Reshape-17(%20, %10)
  %23 'k' float32[1, 3, 1, 3] = Reshape-17(%22, %11)
  %26 'v' float32[1, 3, 2, 1] = Reshape-17(%25, %12)
  %27 'y' float32[1, 3, 6] = Relu-17(%17)
  %46 'pa and more' float32[1, 3, 5] = MatMul-13(%27, %45)
  %28 'pa' float32[1, 3, 3], %29 'pb' float32[1, 3, 2] = Split-13(%46, %47) 'axis'=2
  %30 'b' float32[1, 3, 1, 2] = Reshape-17(%29, %14)
  %31 'a' float32[1, 3, 3, 1] = Reshape-17(%28, %13)
  %43 'pc and more' float32[5, 5] = Gemm-13(%18, %41, %42) 'transB'=1
  %32 'pc' float32[5, 2], %34 'pd' float32[5, 3] = Split-13(%43, %44) 'axis'=1
  %33 'c' float32[5, 2, 1] = Reshape-17(%32, %15)
  %35 'd' float32[5, 3, 1] = Reshape-17(%34, %16)
  output %21 'q'
  output %23 'k'
  output %26 'v'
  output %31 'a'
  output %30 'b'
  output %33 'c'
  output %35 'd'
