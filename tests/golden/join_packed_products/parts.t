Two products of x with zero points and biases are one. One without them, and one of another input, stay.
for: cuda
tolerance: 1e-4
----
<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
g (float[2, 16] x) => (float[2, 2] a, float[2, 3] b, float[2, 2] c, float[2, 2] d)
  <uint8[2, 1, 8] wa = {121, 66, 189, 242, 33, 6, 240, 132, 119, 98, 240, 243, 203, 77, 118, 77}, float[2] sa = {3, 0.25}, uint8[2] za = {3, 7}, float[2] ba = {0.5, 0.5},
   uint8[3, 1, 8] wb = {81, 21, 154, 15, 137, 242, 198, 218, 202, 227, 68, 187, 49, 18, 69, 253, 111, 132, 223, 154, 215, 197, 179, 208}, float[3] sb = {3, 1, -2}, uint8[3] zb = {1, 8, 5}, float[3] bb = {0.5, -2, 3},
   uint8[2, 1, 8] wc = {83, 167, 53, 108, 136, 145, 63, 32, 246, 247, 45, 176, 34, 210, 77, 10}, float[2] sc = {-2, 0.25}, uint8[2, 1, 8] wd = {212, 60, 22, 23, 193, 169, 142, 120, 18, 158, 3, 39, 55, 16, 101, 208}, float[2] sd = {-2, 3}>
{
  a = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 4, block_size = 16> (x, wa, sa, za, , ba)
  y = Relu (x)
  b = com.microsoft.MatMulNBits <K = 16, N = 3, bits = 4, block_size = 16> (x, wb, sb, zb, , bb)
  c = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 4, block_size = 16> (x, wc, sc)
  d = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 4, block_size = 16> (y, wd, sd)
}
====
join_packed_products: 2
graph 'g'
  opset 'ai.onnx' 17
  opset 'com.microsoft' 1
  input %12 'x' float32[2, 16]
  constant %0 'wa' uint8[2, 1, 8]
  constant %1 'sa' float32[2] {3, 0.25}
  constant %2 'za' uint8[2] {3, 7}
  constant %3 'ba' float32[2] {0.5, 0.5}
  constant %4 'wb' uint8[3, 1, 8]
  constant %5 'sb' float32[3] {3, 1, -2}
  constant %6 'zb' uint8[3] {1, 8, 5}
  constant %7 'bb' float32[3] {0.5, -2, 3}
  constant %8 'wc' uint8[2, 1, 8]
  constant %9 'sc' float32[2] {-2, 0.25}
  constant %10 'wd' uint8[2, 1, 8]
  constant %11 'sd' float32[2] {-2, 3}
  constant %18 '' uint8[5, 1, 8]
  constant %19 '' float32[5] {3, 0.25, 3, 1, -2}
  constant %20 '' uint8[5] {3, 7, 1, 8, 5}
  constant %21 '' float32[5] {0.5, 0.5, 0.5, -2, 3}
  constant %23 '' int64[2] {2, 3}
  %22 'a and more' float32[2, 5] = com.microsoft.MatMulNBits-1(%12, %18, %19, %20, -, %21) 'K'=16 'N'=5 'bits'=4 'block_size'=16
  %13 'a' float32[2, 2], %15 'b' float32[2, 3] = Split-13(%22, %23) 'axis'=1
  %14 'y' float32[2, 16] = Relu-17(%12)
  %16 'c' float32[2, 2] = com.microsoft.MatMulNBits-1(%12, %8, %9) 'K'=16 'N'=2 'bits'=4 'block_size'=16
  %17 'd' float32[2, 2] = com.microsoft.MatMulNBits-1(%14, %10, %11) 'K'=16 'N'=2 'bits'=4 'block_size'=16
  output %13 'a'
  output %15 'b'
  output %16 'c'
  output %17 'd'
