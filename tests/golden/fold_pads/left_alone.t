Other values, other modes, a dimension of channels, cropping, windows of padding alone and padding by rule.
----
<ir_version: 8, opset_import: ["": 18]>
g (float[N, 2, H, W] x, float value, float[3, 2, 3, 3] w, float[3, 3, 3, 3] v) => (float[N, 3, A, B] a, float[N, 3, C, D] b, float[N, 3, E, F] c, float[N, 3, G, I] d, float[N, 3, J, K] e, float[N, 3, L, M] f, float[N, 3, O, P] g)
  <int64[8] one = {0, 0, 1, 1, 0, 0, 1, 1}, int64[8] channel = {0, 1, 0, 0, 0, 0, 0, 0},
   int64[8] crop = {0, 0, -1, 0, 0, 0, 0, 0}, int64[8] wide = {0, 0, 3, 0, 0, 0, 0, 0}, float half = {0.5}>
{
  a0 = Pad (x, one, half)
  a = Conv (a0, w)
  b0 = Pad (x, one, value)
  b = Conv (b0, w)
  c0 = Pad <mode = "reflect"> (x, one)
  c = Conv (c0, w)
  d0 = Pad (x, channel)
  d = Conv (d0, v)
  e0 = Pad (x, crop)
  e = Conv (e0, w)
  f0 = Pad (x, wide)
  f = Conv (f0, w)
  g0 = Pad (x, one)
  g = Conv <auto_pad = "SAME_UPPER"> (g0, w)
}
====
fold_pads: 0
graph 'g'
  opset 'ai.onnx' 18
  input %5 'x' float32[N, 2, H, W]
  input %6 'value' float32[]
  input %7 'w' float32[3, 2, 3, 3]
  input %8 'v' float32[3, 3, 3, 3]
  constant %0 'one' int64[8] {0, 0, 1, 1, 0, 0, 1, 1}
  constant %1 'channel' int64[8] {0, 1, 0, 0, 0, 0, 0, 0}
  constant %2 'crop' int64[8] {0, 0, -1, 0, 0, 0, 0, 0}
  constant %3 'wide' int64[8] {0, 0, 3, 0, 0, 0, 0, 0}
  constant %4 'half' float32[] {0.5}
  %9 'a0' float32[N, 2, u, u.1] = Pad-18(%5, %0, %4)
  %10 'a' float32[N, 3, u.2, u.3] = Conv-18(%9, %7)
  %11 'b0' float32[N, 2, u.4, u.5] = Pad-18(%5, %0, %6)
  %12 'b' float32[N, 3, u.6, u.7] = Conv-18(%11, %7)
  %13 'c0' float32[N, 2, u.8, u.9] = Pad-18(%5, %0) 'mode'='reflect'
  %14 'c' float32[N, 3, u.10, u.11] = Conv-18(%13, %7)
  %15 'd0' float32[N, 3, H, W] = Pad-18(%5, %1)
  %16 'd' float32[N, 3, u.12, u.13] = Conv-18(%15, %8)
  %17 'e0' float32[N, 2, u.14, W] = Pad-18(%5, %2)
  %18 'e' float32[N, 3, u.15, u.16] = Conv-18(%17, %7)
  %19 'f0' float32[N, 2, u.17, W] = Pad-18(%5, %3)
  %20 'f' float32[N, 3, u.18, u.19] = Conv-18(%19, %7)
  %21 'g0' float32[N, 2, u.20, u.21] = Pad-18(%5, %0)
  %22 'g' float32[N, 3, u.22, u.23] = Conv-18(%21, %7) 'auto_pad'='SAME_UPPER'
  output %10 'a'
  output %12 'b'
  output %14 'c'
  output %16 'd'
  output %18 'e'
  output %20 'f'
  output %22 'g'
