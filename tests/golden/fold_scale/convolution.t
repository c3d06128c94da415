A product and a sum per channel become weights and bias; so does what is divided by a number or subtracted.
tolerance: 1e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 2, 3, 3] x) => (float[N, 2, 3, 3] y, float[N, 4, 3, 3] z)
  <float[2, 2, 1, 1] w = {1, -2, 0.5, 3}, float[2, 1, 1] scale = {2, 0.5}, float[1, 2, 1, 1] shift = {1, -1},
   float[2, 2, 1, 1] v = {1, 2, 3, 4}, float[4] bias = {1, 2, 3, 4}, float[4, 1, 1] divisor = {2, 4, 8, -1},
   float ten = {10}>
{
  a = Conv (x, w)
  b = Mul (scale, a)
  y = Add (b, shift)
  c = ConvTranspose <group = 2> (x, v, bias)
  d = Div (c, divisor)
  z = Sub (ten, d)
}
====
fold_scale: 4
graph 'g'
  opset 'ai.onnx' 17
  input %7 'x' float32[N, 2, 3, 3]
  constant %0 'w' float32[2, 2, 1, 1] {1, -2, 0.5, 3}
  constant %1 'scale' float32[2, 1, 1] {2, 0.5}
  constant %2 'shift' float32[1, 2, 1, 1] {1, -1}
  constant %3 'v' float32[2, 2, 1, 1] {1, 2, 3, 4}
  constant %4 'bias' float32[4] {1, 2, 3, 4}
  constant %5 'divisor' float32[4, 1, 1] {2, 4, 8, -1}
  constant %6 'ten' float32[] {10}
  constant %14 'w scaled' float32[2, 2, 1, 1] {2, -4, 0.25, 1.5}
  constant %15 'w scaled bias' float32[2] {1, -1}
  constant %16 'v scaled' float32[2, 2, 1, 1] {0.5, 0.5, 0.375, -4}
  constant %17 'v bias' float32[4] {0.5, 0.5, 0.375, -4}
  constant %18 'v scaled scaled' float32[2, 2, 1, 1] {-0.5, -0.5, -0.375, 4}
  constant %19 'v scaled bias' float32[4] {9.5, 9.5, 9.625, 14}
  %10 'y' float32[N, 2, 3, 3] = Conv-17(%7, %14, %15)
  %13 'z' float32[N, 4, 3, 3] = ConvTranspose-17(%7, %18, %19) 'group'=2
  output %10 'y'
  output %13 'z'
