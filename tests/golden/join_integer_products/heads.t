Products of one quantised input with one zero point of all weights, split into heads, are one: scales of a matrix and of its columns, biases. One of another zero point, one without a bias and one that is not split into heads stay.
for: cuda
tolerance: 1e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 1, 2] a, float[2, 3, 1] b, float[2, 1, 2] c, float[2, 1, 2] d, float[2, 2] e)
  <int8[4, 2] wa = {1, -2, 3, 4, -5, 6, 7, -8}, int8 za = {0}, float sa = {0.5}, float[2] ba = {0.5, -0.5},
   int8[4, 3] wb = {9, 8, -7, 6, 5, 4, -3, 2, 1, 0, -1, 127}, int8[3] zb = {0, 0, 0}, float[3] sb = {0.5, 0.25, 2}, float[3] bb = {1, 2, 3},
   int8[4, 2] wc = {1, 1, 2, 2, 3, 3, 4, 4}, int8 zc = {1}, float sc = {0.125}, float[2] bc = {1, 1},
   int8[4, 2] wd = {5, 1, 5, 2, 5, 3, 5, 4}, float sd = {0.75},
   int8[4, 2] we = {5, 5, 6, 2, 8, 3, 5, 4}, float se = {0.25}, float[2] be = {3, 1},
   int64[3] heads = {2, 1, 2}, int64[3] wide = {2, 3, 1}>
{
  q, s, z = DynamicQuantizeLinear (x)
  a1 = MatMulInteger (q, wa, z, za)
  a2 = Cast <to = 1> (a1)
  a3 = Mul (s, sa)
  a4 = Mul (a2, a3)
  a5 = Add (ba, a4)
  a = Reshape (a5, heads)
  b1 = MatMulInteger (q, wb, z, zb)
  b2 = Cast <to = 1> (b1)
  b3 = Mul (sb, s)
  b4 = Mul (b3, b2)
  b5 = Add (b4, bb)
  b = Reshape (b5, wide)
  c1 = MatMulInteger (q, wc, z, zc)
  c2 = Cast <to = 1> (c1)
  c3 = Mul (s, sc)
  c4 = Mul (c2, c3)
  c5 = Add (c4, bc)
  c = Reshape (c5, heads)
  d1 = MatMulInteger (q, wd, z)
  d2 = Cast <to = 1> (d1)
  d3 = Mul (s, sd)
  d4 = Mul (d2, d3)
  d = Reshape (d4, heads)
  e1 = MatMulInteger (q, we, z)
  e2 = Cast <to = 1> (e1)
  e3 = Mul (s, se)
  e4 = Mul (e2, e3)
  e = Add (e4, be)
}
====
join_integer_products: 2
graph 'g'
  opset 'ai.onnx' 17
  input %19 'x' float32[2, 4]
  constant %0 'wa' int8[4, 2] {1, -2, 3, 4, -5, 6, 7, -8}
  constant %1 'za' int8[] {0}
  constant %2 'sa' float32[] {0.5}
  constant %3 'ba' float32[2] {0.5, -0.5}
  constant %4 'wb' int8[4, 3]
  constant %5 'zb' int8[3] {0, 0, 0}
  constant %6 'sb' float32[3] {0.5, 0.25, 2}
  constant %7 'bb' float32[3] {1, 2, 3}
  constant %8 'wc' int8[4, 2] {1, 1, 2, 2, 3, 3, 4, 4}
  constant %9 'zc' int8[] {1}
  constant %10 'sc' float32[] {0.125}
  constant %11 'bc' float32[2] {1, 1}
  constant %12 'wd' int8[4, 2] {5, 1, 5, 2, 5, 3, 5, 4}
  constant %13 'sd' float32[] {0.75}
  constant %14 'we' int8[4, 2] {5, 5, 6, 2, 8, 3, 5, 4}
  constant %15 'se' float32[] {0.25}
  constant %16 'be' float32[2] {3, 1}
  constant %17 'heads' int64[3] {2, 1, 2}
  constant %18 'wide' int64[3] {2, 3, 1}
  constant %51 '' int8[4, 5]
  constant %52 '' int8[] {0}
  constant %55 '' float32[5] {0.5, 0.5, 0.5, 0.25, 2}
  constant %58 '' float32[5] {0.5, -0.5, 1, 2, 3}
  constant %60 '' int64[2] {2, 3}
  %20 'q' uint8[2, 4], %21 's' float32[], %22 'z' uint8[] = DynamicQuantizeLinear-17(%19)
  %53 'a1 and more' int32[2, 5] = MatMulInteger-17(%20, %51, %22, %52)
  %54 'a2 and more' float32[2, 5] = Cast-17(%53) 'to'=1
  %56 'a3 and more' float32[5] = Mul-17(%21, %55)
  %57 'a4 and more' float32[2, 5] = Mul-17(%54, %56)
  %59 'a5 and more' float32[2, 5] = Add-17(%57, %58)
  %27 'a5' float32[2, 2], %33 'b5' float32[2, 3] = Split-13(%59, %60) 'axis'=1
  %28 'a' float32[2, 1, 2] = Reshape-17(%27, %17)
  %34 'b' float32[2, 3, 1] = Reshape-17(%33, %18)
  %35 'c1' int32[2, 2] = MatMulInteger-17(%20, %8, %22, %9)
  %36 'c2' float32[2, 2] = Cast-17(%35) 'to'=1
  %37 'c3' float32[] = Mul-17(%21, %10)
  %38 'c4' float32[2, 2] = Mul-17(%36, %37)
  %39 'c5' float32[2, 2] = Add-17(%38, %11)
  %40 'c' float32[2, 1, 2] = Reshape-17(%39, %17)
  %41 'd1' int32[2, 2] = MatMulInteger-17(%20, %12, %22)
  %42 'd2' float32[2, 2] = Cast-17(%41) 'to'=1
  %43 'd3' float32[] = Mul-17(%21, %13)
  %44 'd4' float32[2, 2] = Mul-17(%42, %43)
  %45 'd' float32[2, 1, 2] = Reshape-17(%44, %17)
  %46 'e1' int32[2, 2] = MatMulInteger-17(%20, %14, %22)
  %47 'e2' float32[2, 2] = Cast-17(%46) 'to'=1
  %48 'e3' float32[] = Mul-17(%21, %15)
  %49 'e4' float32[2, 2] = Mul-17(%47, %48)
  %50 'e' float32[2, 2] = Add-17(%49, %16)
  output %28 'a'
  output %34 'b'
  output %40 'c'
  output %45 'd'
  output %50 'e'
