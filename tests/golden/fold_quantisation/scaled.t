The scale of the result joins those of the operands, through a Relu, too; it stays where the product has other readers or is none.
pass: multiply_integers, fold_quantisation
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x, float[2, 2] f) => (uint8[2, 2] y, uint8[2, 2] z, float[2, 2] r, uint8[2, 2] u)
  <int8[2, 3] w = {1, -2, 3, 4, 5, -6}, float[2] s = {0.5, 0.25}, int8[2] zw = {0, 0}, float sx = {0.25}, uint8 zx = {3},
   int32[2] b = {8, -16}, float[2] sb = {0.125, 0.0625}, int32[2] zb = {0, 0}, float sy = {0.125}, uint8 zy = {5}>
{
  q = QuantizeLinear (x, sx, zx)
  a = DequantizeLinear (q, sx, zx)
  v = DequantizeLinear <axis = 0> (w, s, zw)
  c = DequantizeLinear <axis = 0> (b, sb, zb)
  p = Gemm <transB = 1> (a, v, c)
  o = Relu (p)
  y = QuantizeLinear (o, sy, zy)
  r = Gemm <transB = 1> (a, v)
  z = QuantizeLinear (r, sy, zy)
  u = QuantizeLinear (f, sy, zy)
}
====
multiply_integers: 2
fold_quantisation: 1
graph 'g'
  opset 'ai.onnx' 17
  input %10 'x' float32[2, 3]
  input %11 'f' float32[2, 2]
  constant %0 'w' int8[2, 3] {1, -2, 3, 4, 5, -6}
  constant %1 's' float32[2] {0.5, 0.25}
  constant %2 'zw' int8[2] {0, 0}
  constant %3 'sx' float32[] {0.25}
  constant %4 'zx' uint8[] {3}
  constant %5 'b' int32[2] {8, -16}
  constant %6 'sb' float32[2] {0.125, 0.0625}
  constant %7 'zb' int32[2] {0, 0}
  constant %8 'sy' float32[] {0.125}
  constant %9 'zy' uint8[] {5}
  constant %22 '.bias' float32[2] {1, -1}
  constant %23 'zw' int8[] {0}
  constant %25 '.scale' float32[2] {0.125, 0.0625}
  constant %29 'zw' int8[] {0}
  constant %31 '.scale' float32[2] {0.125, 0.0625}
  constant %34 '.bias.quantised' float32[2] {8, -8}
  constant %35 '.scale.quantised' float32[2] {1, 0.5}
  constant %36 'sy.one' float32[] {1}
  %12 'q' uint8[2, 3] = QuantizeLinear-17(%10, %3, %4)
  %24 '.transposed' int8[3, 2] = Transpose-13(%0) 'perm'=[1, 0]
  %26 'p.sum' int32[2, 2] = MatMulInteger-10(%12, %24, %4, %23)
  %27 'p.float' float32[2, 2] = Cast-13(%26) 'to'=1
  %28 'p.scaled' float32[2, 2] = Mul-13(%27, %35)
  %16 'p' float32[2, 2] = Add-13(%28, %34)
  %17 'o' float32[2, 2] = Relu-17(%16)
  %18 'y' uint8[2, 2] = QuantizeLinear-17(%17, %36, %9)
  %30 '.transposed' int8[3, 2] = Transpose-13(%0) 'perm'=[1, 0]
  %32 'r.sum' int32[2, 2] = MatMulInteger-10(%12, %30, %4, %29)
  %33 'r.float' float32[2, 2] = Cast-13(%32) 'to'=1
  %19 'r' float32[2, 2] = Mul-13(%33, %31)
  %20 'z' uint8[2, 2] = QuantizeLinear-17(%19, %8, %9)
  %21 'u' uint8[2, 2] = QuantizeLinear-17(%11, %8, %9)
  output %18 'y'
  output %20 'z'
  output %19 'r'
  output %21 'u'
