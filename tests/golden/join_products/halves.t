Weights of float16 (given as bits) that products of float32 multiply stay float16: one joined constant behind one Cast. Biases are float32.
tolerance: 2e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 3, 4] x) => (float[1, 3, 2, 1] q, float[1, 3, 1, 2] k, float[1, 3, 1, 1] v, float[1, 3, 1, 1] o)
  <float16[4, 2] wq = {15360, 16384, 48128, 14336, 15360, 49152, 16896, 15360}, float16[4, 2] wk = {16384, 15360, 14336, 47104, 15360, 16896, 48128, 16384}, float16[4, 1] wv = {15360, 48128, 16384, 14336}, float[4, 1] wo = {1, 2, 1, 2}, float[2] bq = {0.5, -1},
   int64[4] hq = {1, 3, 2, 1}, int64[4] hk = {1, 3, 1, 2}, int64[4] hv = {1, 3, 1, 1}>
{
  cq = Cast <to = 1> (wq)
  ck = Cast <to = 1> (wk)
  cv = Cast <to = 1> (wv)
  pq = MatMul (x, cq)
  sq = Add (pq, bq)
  q = Reshape (sq, hq)
  pk = MatMul (x, ck)
  k = Reshape (pk, hk)
  pv = MatMul (x, cv)
  v = Reshape (pv, hv)
  po = MatMul (x, wo)
  o = Reshape (po, hv)
}
====
join_products: 3
graph 'g'
  opset 'ai.onnx' 17
  input %8 'x' float32[1, 3, 4]
  constant %0 'wq' float16[4, 2] {1, 2, -1, 0.5, 1, -2, 3, 1}
  constant %1 'wk' float16[4, 2] {2, 1, 0.5, -0.5, 1, 3, -1, 2}
  constant %2 'wv' float16[4, 1] {1, -1, 2, 0.5}
  constant %3 'wo' float32[4, 1] {1, 2, 1, 2}
  constant %4 'bq' float32[2] {0.5, -1}
  constant %5 'hq' int64[4] {1, 3, 2, 1}
  constant %6 'hk' int64[4] {1, 3, 1, 2}
  constant %7 'hv' int64[4] {1, 3, 1, 1}
  constant %21 '' float16[4, 5]
  constant %23 '' float32[5] {0.5, -1, 0, 0, 0}
  constant %26 '' int64[3] {2, 2, 1}
  %22 '' float32[4, 5] = Cast-13(%21) 'to'=1
  %24 'sq and more' float32[1, 3, 5] = MatMul-13(%8, %22)
  %25 'sq and more' float32[1, 3, 5] = Add-14(%24, %23)
  %13 'sq' float32[1, 3, 2], %15 'pk' float32[1, 3, 2], %17 'pv' float32[1, 3, 1] = Split-13(%25, %26) 'axis'=2
  %14 'q' float32[1, 3, 2, 1] = Reshape-17(%13, %5)
  %16 'k' float32[1, 3, 1, 2] = Reshape-17(%15, %6)
  %18 'v' float32[1, 3, 1, 1] = Reshape-17(%17, %7)
  %19 'po' float32[1, 3, 1] = MatMul-17(%8, %3)
  %20 'o' float32[1, 3, 1, 1] = Reshape-17(%19, %7)
  output %14 'q'
  output %16 'k'
  output %18 'v'
  output %20 'o'
