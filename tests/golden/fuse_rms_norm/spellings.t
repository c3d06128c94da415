Pow and Reciprocal as in Llama, a product and Div, and the power -1/2.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, S, 4] x) => (float[N, S, 4] a, float[N, S, 4] b, float[N, S, 4] c)
  <float[4] scale = {1, 2, 0.5, -1}, float two = {2}, float epsilon = {0.00001}, float power = {-0.5}>
{
  square = Pow (x, two)
  mean = ReduceMean <axes = [-1]> (square)
  sum = Add (mean, epsilon)
  root = Sqrt (sum)
  inverse = Reciprocal (root)
  normal = Mul (x, inverse)
  a = Mul (scale, normal)
  square2 = Mul (x, x)
  mean2 = ReduceMean <axes = [2]> (square2)
  sum2 = Add (epsilon, mean2)
  root2 = Sqrt (sum2)
  normal2 = Div (x, root2)
  b = Mul (normal2, scale)
  inverse3 = Pow (sum2, power)
  normal3 = Mul (inverse3, x)
  c = Mul (normal3, scale)
}
====
fuse_rms_norm: 3
graph 'g'
  opset 'ai.onnx' 17
  input %4 'x' float32[N, S, 4]
  constant %0 'scale' float32[4] {1, 2, 0.5, -1}
  constant %1 'two' float32[] {2}
  constant %2 'epsilon' float32[] {1e-05}
  constant %3 'power' float32[] {-0.5}
  %11 'a' float32[N, S, 4] = RMSNormalization-23(%4, %0) 'axis'=-1 'epsilon'=1e-05f
  %17 'b' float32[N, S, 4] = RMSNormalization-23(%4, %0) 'axis'=-1 'epsilon'=1e-05f
  %20 'c' float32[N, S, 4] = RMSNormalization-23(%4, %0) 'axis'=-1 'epsilon'=1e-05f
  output %11 'a'
  output %17 'b'
  output %20 'c'
