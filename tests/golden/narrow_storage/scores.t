Memory between products is bfloat16, and weights are. Scores reach the Softmax as float32; an angle of a sine is a product of
float32; inputs and outputs stay what they are.
tolerance: 2e-2
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x, float[2, 1] position) => (float[2, 2] y, float[2, 2] sine)
  <float[4, 4] w = {1, 0.5, -1, 2, 0.25, 1.001, 3, -2, 1, 1, 0.5, -0.5, 2, 0, 1, 1}, float[1, 2] rate = {1, 0.1}, float half = {0.5}>
{
  a = MatMul (x, w)
  r = Relu (a)
  b = MatMul (r, w)
  t = Transpose <perm = [1, 0]> (b)
  s = MatMul (b, t)
  m = Mul (s, half)
  p = Softmax (m)
  angle = MatMul (position, rate)
  sine = Sin (angle)
  y = Mul (p, sine)
}
====
narrow_storage: 6
graph 'g'
  opset 'ai.onnx' 17
  input %3 'x' float32[2, 4]
  input %4 'position' float32[2, 1]
  constant %0 'w' float32[4, 4]
  constant %1 'rate' float32[1, 2] {1, 0.1}
  constant %2 'half' float32[] {0.5}
  constant %15 'w' bfloat16[4, 4]
  %16 'x' float32[2, 4] stored as bfloat16 = tensorbox.Store-1(%3) # '/stored'
  %5 'a' float32[2, 4] stored as bfloat16 = MatMul-17(%16, %15)
  %6 'r' float32[2, 4] stored as bfloat16 = Relu-17(%5)
  %7 'b' float32[2, 4] stored as bfloat16 = MatMul-17(%6, %15)
  %8 't' float32[4, 2] stored as bfloat16 = Transpose-17(%7) 'perm'=[1, 0]
  %9 's' float32[2, 2] = MatMul-17(%7, %8)
  %10 'm' float32[2, 2] = Mul-17(%9, %2)
  %11 'p' float32[2, 2] = Softmax-17(%10)
  %12 'angle' float32[2, 2] = MatMul-17(%4, %1)
  %13 'sine' float32[2, 2] = Sin-17(%12)
  %14 'y' float32[2, 2] = Mul-17(%11, %13)
  output %14 'y'
  output %13 'sine'
