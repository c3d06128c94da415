Few tokens, probabilities that somebody else reads, heads that broadcast, another axis: two products and a softmax.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 64, 4] q, float[1, 2, 4, 64] k, float[1, 2, 64, 3] v,
   float[2, 600, 4] r, float[2, 4, 600] s, float[2, 600, 3] t, float[1, 600, 3] u)
  => (float[1, 2, 64, 3] a, float[2, 600, 3] b, float[2, 600, 600] c, float[2, 600, 3] d, float[2, 600, 3] e)
{
  scores = MatMul (q, k)
  p = Softmax <axis = -1> (scores)
  a = MatMul (p, v)
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
}
====
fuse_attention: 0
graph 'g'
  opset 'ai.onnx' 17
  input %0 'q' float32[1, 2, 64, 4]
  input %1 'k' float32[1, 2, 4, 64]
  input %2 'v' float32[1, 2, 64, 3]
  input %3 'r' float32[2, 600, 4]
  input %4 's' float32[2, 4, 600]
  input %5 't' float32[2, 600, 3]
  input %6 'u' float32[1, 600, 3]
  %7 'scores' float32[1, 2, 64, 64] = MatMul-17(%0, %1)
  %8 'p' float32[1, 2, 64, 64] = Softmax-17(%7) 'axis'=-1
  %9 'a' float32[1, 2, 64, 3] = MatMul-17(%8, %2)
  %10 'scores2' float32[2, 600, 600] = MatMul-17(%3, %4)
  %11 'p2' float32[2, 600, 600] = Softmax-17(%10) 'axis'=-1
  %12 'b' float32[2, 600, 3] = MatMul-17(%11, %5)
  %13 'c' float32[2, 600, 600] = Neg-17(%11)
  %14 'scores3' float32[2, 600, 600] = MatMul-17(%3, %4)
  %15 'p3' float32[2, 600, 600] = Softmax-17(%14) 'axis'=-1
  %16 'd' float32[2, 600, 3] = MatMul-17(%15, %6)
  %17 'scores4' float32[2, 600, 600] = MatMul-17(%3, %4)
  %18 'p4' float32[2, 600, 600] = Softmax-17(%17) 'axis'=1
  %19 'e' float32[2, 600, 3] = MatMul-17(%18, %5)
  output %9 'a'
  output %12 'b'
  output %13 'c'
  output %16 'd'
  output %19 'e'
