Pools of dequantised bytes are pools of the bytes, whoever reads them; what is quantised again by the same scale stays as it is, but not by another, and a window that may see padding alone stays in floats.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 5, 4] f, float[1, 2, 5, 4] h) => (uint8[1, 2, 3, 2] y, uint8[1, 2, 3, 2] z, float[1, 2, 3, 2] r, int8[1, 2, 4, 3] u, float[1, 2, 3, 2] o)
  <float sx = {0.25}, uint8 zx = {3}, float sy = {0.125}, int8 zw = {-7}, float[1] sz = {0.25}, uint8[1] zz = {3}>
{
  x = QuantizeLinear (f, sx, zx)
  d = DequantizeLinear (x, sx, zx)
  p = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (d)
  q = QuantizeLinear (p, sz, zz)
  y = Add (q, q)
  z = QuantizeLinear (p, sy, zx)
  r = Relu (p)
  w = QuantizeLinear (h, sy, zw)
  e = DequantizeLinear (w, sy, zw)
  v = MaxPool <kernel_shape = [2, 2]> (e)
  u = QuantizeLinear (v, sy, zw)
  o = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (d)
}
====
pool_integers: 2
graph 'g'
  opset 'ai.onnx' 17
  input %6 'f' float32[1, 2, 5, 4]
  input %7 'h' float32[1, 2, 5, 4]
  constant %0 'sx' float32[] {0.25}
  constant %1 'zx' uint8[] {3}
  constant %2 'sy' float32[] {0.125}
  constant %3 'zw' int8[] {-7}
  constant %4 'sz' float32[1] {0.25}
  constant %5 'zz' uint8[1] {3}
  %8 'x' uint8[1, 2, 5, 4] = QuantizeLinear-17(%6, %0, %1)
  %9 'd' float32[1, 2, 5, 4] = DequantizeLinear-17(%8, %0, %1)
  %20 'p.integer' uint8[1, 2, 3, 2] = MaxPool-17(%8) 'kernel_shape'=[3, 3] 'pads'=[1, 1, 1, 1] 'strides'=[2, 2]
  %10 'p' float32[1, 2, 3, 2] = DequantizeLinear-17(%20, %0, %1)
  %12 'y' uint8[1, 2, 3, 2] = Add-17(%20, %20)
  %13 'z' uint8[1, 2, 3, 2] = QuantizeLinear-17(%10, %2, %1)
  %14 'r' float32[1, 2, 3, 2] = Relu-17(%10)
  %15 'w' int8[1, 2, 5, 4] = QuantizeLinear-17(%7, %2, %3)
  %21 'v.integer' int8[1, 2, 4, 3] = MaxPool-17(%15) 'kernel_shape'=[2, 2]
  %17 'v' float32[1, 2, 4, 3] = DequantizeLinear-17(%21, %2, %3)
  %18 'u' int8[1, 2, 4, 3] = QuantizeLinear-17(%17, %2, %3)
  %19 'o' float32[1, 2, 3, 2] = MaxPool-17(%9) 'ceil_mode'=1 'kernel_shape'=[2, 2] 'strides'=[2, 2]
  output %12 'y'
  output %13 'z'
  output %14 'r'
  output %18 'u'
  output %19 'o'
