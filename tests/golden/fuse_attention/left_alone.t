Probabilities or scores that somebody else reads, another axis, operands of other ranks: two products and a softmax.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 600, 4] r, float[2, 4, 600] s, float[2, 600, 3] t, float[600, 3] u)
  => (float[2, 600, 3] b, float[2, 600, 600] c, float[2, 600, 3] d, float[2, 600, 3] e, float[2, 600, 3] f, float[2, 600, 600] h)
{
  scores2 = MatMul (r, s)
  p2 = Softmax <axis = -1> (scores2)
  b = MatMul (p2, t)
  c = Neg (p2)
  scores3 = MatMul (r, s)
  p3 = Softmax <axis = -1> (scores3)
  d = MatMul (p3, u)
  scores4 = MatMul (r, s)
  p4 = Softmax <axis = 1> (scores4)
  e = MatMul (p4, t)
  scores5 = MatMul (r, s)
  p5 = Softmax <axis = -1> (scores5)
  f = MatMul (p5, t)
  h = Neg (scores5)
}
====
fuse_attention: 0
graph 'g'
  opset 'ai.onnx' 17
  input %0 'r' float32[2, 600, 4]
  input %1 's' float32[2, 4, 600]
  input %2 't' float32[2, 600, 3]
  input %3 'u' float32[600, 3]
  %4 'scores2' float32[2, 600, 600] = MatMul-17(%0, %1)
  %5 'p2' float32[2, 600, 600] = Softmax-17(%4) 'axis'=-1
  %6 'b' float32[2, 600, 3] = MatMul-17(%5, %2)
  %7 'c' float32[2, 600, 600] = Neg-17(%5)
  %8 'scores3' float32[2, 600, 600] = MatMul-17(%0, %1)
  %9 'p3' float32[2, 600, 600] = Softmax-17(%8) 'axis'=-1
  %10 'd' float32[2, 600, 3] = MatMul-17(%9, %3)
  %11 'scores4' float32[2, 600, 600] = MatMul-17(%0, %1)
  %12 'p4' float32[2, 600, 600] = Softmax-17(%11) 'axis'=1
  %13 'e' float32[2, 600, 3] = MatMul-17(%12, %2)
  %14 'scores5' float32[2, 600, 600] = MatMul-17(%0, %1)
  %15 'p5' float32[2, 600, 600] = Softmax-17(%14) 'axis'=-1
  %16 'f' float32[2, 600, 3] = MatMul-17(%15, %2)
  %17 'h' float32[2, 600, 600] = Neg-17(%14)
  output %6 'b'
  output %7 'c'
  output %10 'd'
  output %13 'e'
  output %16 'f'
  output %17 'h'
