Heads of a detector: three pairs of the same input, one without biases, and one that a Shape is read of as well.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 2, h, w] x) => (float[n, h, w, 1] a, float[n, h, w, 2] b, float[n, h, w, 1] c, int64[4] d)
  <float[1, 2, 1, 1] pa = {1, 2}, float[1] ba = {3}, float[1, 1, 3, 1] da = {1, 2, 3}, float[1] ca = {4}, float[2, 2, 1, 1] pb = {5, 6, 7, 8}, float[2, 1, 3, 1] db = {4, 5, 6, 7, 8, 9}, float[1, 2, 1, 1] pc = {9, 10}, float[1] bc = {11}, float[1, 1, 3, 1] dc = {10, 11, 12}>
{
  ya = Conv (x, pa, ba)
  za = Conv <pads = [1, 0, 1, 0]> (ya, da, ca)
  a = Transpose <perm = [0, 2, 3, 1]> (za)
  yb = Conv (x, pb)
  zb = Conv <pads = [1, 0, 1, 0], group = 2> (yb, db)
  b = Transpose <perm = [0, 2, 3, 1]> (zb)
  yc = Conv <kernel_shape = [1, 1], strides = [1, 1]> (x, pc, bc)
  zc = Conv <pads = [1, 0, 1, 0]> (yc, dc)
  c = Transpose <perm = [0, 2, 3, 1]> (zc)
  d = Shape (zc)
}
====
join_convolutions: 3
graph 'g'
  opset 'ai.onnx' 17
  input %9 'x' float32[n, 2, h, w]
  constant %0 'pa' float32[1, 2, 1, 1] {1, 2}
  constant %1 'ba' float32[1] {3}
  constant %2 'da' float32[1, 1, 3, 1] {1, 2, 3}
  constant %3 'ca' float32[1] {4}
  constant %4 'pb' float32[2, 2, 1, 1] {5, 6, 7, 8}
  constant %5 'db' float32[2, 1, 3, 1] {4, 5, 6, 7, 8, 9}
  constant %6 'pc' float32[1, 2, 1, 1] {9, 10}
  constant %7 'bc' float32[1] {11}
  constant %8 'dc' float32[1, 1, 3, 1] {10, 11, 12}
  constant %21 '' float32[4, 2, 1, 1] {1, 2, 5, 6, 7, 8, 9, 10}
  constant %22 '' float32[4] {3, 0, 0, 11}
  constant %24 '' float32[4, 1, 3, 1]
  constant %25 '' float32[4] {4, 0, 0, 0}
  constant %26 '' int64[3] {1, 2, 1}
  %20 'ya and more' float32[n, 4, u, u.1] = Conv-17(%9, %21, %22)
  %23 'za and more' float32[n, 4, u.2, u.3] = Conv-17(%20, %24, %25) 'group'=4 'pads'=[1, 0, 1, 0]
  %11 'za' float32[n, 1, u.2, u.3], %14 'zb' float32[n, 2, u.6, u.7], %17 'zc' float32[n, 1, u.10, u.11] = Split-13(%23, %26) 'axis'=1
  %12 'a' float32[n, u.2, u.3, 1] = Transpose-17(%11) 'perm'=[0, 2, 3, 1]
  %15 'b' float32[n, u.6, u.7, 2] = Transpose-17(%14) 'perm'=[0, 2, 3, 1]
  %18 'c' float32[n, u.10, u.11, 1] = Transpose-17(%17) 'perm'=[0, 2, 3, 1]
  %19 'd' int64[4] = Shape-17(%17)
  output %12 'a'
  output %15 'b'
  output %18 'c'
  output %19 'd'
