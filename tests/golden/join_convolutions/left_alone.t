An activation behind, an output, other pads, another input, other strides of the first, one that is read twice, groups that are not of each channel: pairs of their own.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 5, 5] x, float[1, 2, 5, 5] z) => (float[1, 25] a, float[1, 1, 5, 5] b, float[1, 35] c, float[1, 25] d, float[1, 9] e, float[1, 25] f, float[1, 1, 5, 5] g1, float[1, 50] h)
  <float[1, 2, 1, 1] p = {1, 2}, float[1, 1, 3, 3] k = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[2, 2, 1, 1] p2 = {1, 2, 3, 4}, float[2, 2, 3, 3] k2 = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}>
{
  ya = Conv (x, p)
  za = Conv <pads = [1, 1, 1, 1]> (ya, k)
  ra = Relu (za)
  a = Flatten (ra)
  yb = Conv (x, p)
  b = Conv <pads = [1, 1, 1, 1]> (yb, k)
  yc = Conv (x, p)
  zc = Conv <pads = [1, 1, 1, 3]> (yc, k)
  c = Flatten (zc)
  yd = Conv (z, p)
  zd = Conv <pads = [1, 1, 1, 1]> (yd, k)
  d = Flatten (zd)
  ye = Conv <strides = [2, 2]> (x, p)
  ze = Conv <pads = [1, 1, 1, 1]> (ye, k)
  e = Flatten (ze)
  yf = Conv (x, p)
  zf = Conv <pads = [1, 1, 1, 1]> (yf, k)
  f = Flatten (zf)
  g1 = Neg (yf)
  yh = Conv (x, p2)
  zh = Conv <pads = [1, 1, 1, 1]> (yh, k2)
  h = Flatten (zh)
}
====
join_convolutions: 0
graph 'g'
  opset 'ai.onnx' 17
  input %4 'x' float32[1, 2, 5, 5]
  input %5 'z' float32[1, 2, 5, 5]
  constant %0 'p' float32[1, 2, 1, 1] {1, 2}
  constant %1 'k' float32[1, 1, 3, 3]
  constant %2 'p2' float32[2, 2, 1, 1] {1, 2, 3, 4}
  constant %3 'k2' float32[2, 2, 3, 3]
  %6 'ya' float32[1, 1, 5, 5] = Conv-17(%4, %0)
  %7 'za' float32[1, 1, 5, 5] = Conv-17(%6, %1) 'pads'=[1, 1, 1, 1]
  %8 'ra' float32[1, 1, 5, 5] = Relu-17(%7)
  %9 'a' float32[1, 25] = Flatten-17(%8)
  %10 'yb' float32[1, 1, 5, 5] = Conv-17(%4, %0)
  %11 'b' float32[1, 1, 5, 5] = Conv-17(%10, %1) 'pads'=[1, 1, 1, 1]
  %12 'yc' float32[1, 1, 5, 5] = Conv-17(%4, %0)
  %13 'zc' float32[1, 1, 5, 7] = Conv-17(%12, %1) 'pads'=[1, 1, 1, 3]
  %14 'c' float32[1, 35] = Flatten-17(%13)
  %15 'yd' float32[1, 1, 5, 5] = Conv-17(%5, %0)
  %16 'zd' float32[1, 1, 5, 5] = Conv-17(%15, %1) 'pads'=[1, 1, 1, 1]
  %17 'd' float32[1, 25] = Flatten-17(%16)
  %18 'ye' float32[1, 1, 3, 3] = Conv-17(%4, %0) 'strides'=[2, 2]
  %19 'ze' float32[1, 1, 3, 3] = Conv-17(%18, %1) 'pads'=[1, 1, 1, 1]
  %20 'e' float32[1, 9] = Flatten-17(%19)
  %21 'yf' float32[1, 1, 5, 5] = Conv-17(%4, %0)
  %22 'zf' float32[1, 1, 5, 5] = Conv-17(%21, %1) 'pads'=[1, 1, 1, 1]
  %23 'f' float32[1, 25] = Flatten-17(%22)
  %24 'g1' float32[1, 1, 5, 5] = Neg-17(%21)
  %25 'yh' float32[1, 2, 5, 5] = Conv-17(%4, %2)
  %26 'zh' float32[1, 2, 5, 5] = Conv-17(%25, %3) 'pads'=[1, 1, 1, 1]
  %27 'h' float32[1, 50] = Flatten-17(%26)
  output %9 'a'
  output %11 'b'
  output %14 'c'
  output %17 'd'
  output %20 'e'
  output %23 'f'
  output %24 'g1'
  output %27 'h'
