A classifier reads one token: of the product, the residual and the norms the others are not computed.
tolerance: 1e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 5, 4] a, float[5, 1, 4] r) => (float[1, 3] y)
  <float[4, 4] w = {0.5, 1, -1, 2, 0.25, -0.5, 1, 1, 2, -1, 0.5, 1, 1, 1, -2, 0.5}, float[4] scale = {1, 2, 3, 4}, float[4] bias = {0, 1, 0, 1},
   float[4, 3] head = {1, 2, -1, 0.5, 1, 1, -2, 1, 0.25, 1, 1, 1}, int64[3] rows = {5, 1, 4}, int64 first = {0}>
{
  p = MatMul (a, w)
  seen = Reshape (p, rows)
  x = Add (seen, r)
  t = Transpose <perm = [1, 0, 2]> (x)
  n = LayerNormalization (t, scale, bias)
  m = MatMul (n, w)
  z = Add (m, t)
  token = Gather <axis = 1> (z, first)
  y = MatMul (token, head)
}
====
compute_selected: 1
graph 'g'
  opset 'ai.onnx' 17
  input %6 'a' float32[1, 5, 4]
  input %7 'r' float32[5, 1, 4]
  constant %0 'w' float32[4, 4]
  constant %1 'scale' float32[4] {1, 2, 3, 4}
  constant %2 'bias' float32[4] {0, 1, 0, 1}
  constant %3 'head' float32[4, 3]
  constant %4 'rows' int64[3] {5, 1, 4}
  constant %5 'first' int64[] {0}
  constant %17 '' int64[1] {0}
  constant %19 '' int64[1] {0}
  constant %22 '' int64[3] {1, 1, 4}
  constant %29 '' int64[] {0}
  %18 'a selected' float32[1, 1, 4] = Gather-13(%6, %17) 'axis'=1
  %20 'r selected' float32[1, 1, 4] = Gather-13(%7, %19) 'axis'=0
  %21 'p selected' float32[1, 1, 4] = MatMul-17(%18, %0)
  %23 'seen selected' float32[1, 1, 4] = Reshape-17(%21, %22)
  %24 'x selected' float32[1, 1, 4] = Add-17(%23, %20)
  %25 't selected' float32[1, 1, 4] = Transpose-17(%24) 'perm'=[1, 0, 2]
  %26 'n selected' float32[1, 1, 4] = LayerNormalization-17(%25, %1, %2)
  %27 'm selected' float32[1, 1, 4] = MatMul-17(%26, %0)
  %28 'z selected' float32[1, 1, 4] = Add-17(%27, %25)
  %15 'token' float32[1, 4] = Gather-13(%28, %29) 'axis'=1
  %16 'y' float32[1, 3] = MatMul-17(%15, %3)
  output %16 'y'
