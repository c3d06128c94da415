Another axis, another value under the root, or a normalised value that somebody else reads: no RMS normalisation.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[3, 4] x, float[3, 4] other) => (float[3, 4] a, float[3, 4] b, float[3, 4] c, float[3, 4] d)
  <float[4] scale = {1, 2, 0.5, -1}, float two = {2}, float epsilon = {0.00001}>
{
  square = Pow (x, two)
  mean = ReduceMean <axes = [0]> (square)
  sum = Add (mean, epsilon)
  root = Sqrt (sum)
  normal = Div (x, root)
  a = Mul (normal, scale)
  mean2 = ReduceMean <axes = [1]> (square)
  sum2 = Add (mean2, epsilon)
  root2 = Sqrt (sum2)
  normal2 = Div (other, root2)
  b = Mul (normal2, scale)
  c = Div (x, root2)
  d = Mul (c, scale)
}
====
fuse_rms_norm: 0
graph 'g'
  opset 'ai.onnx' 17
  input %3 'x' float32[3, 4]
  input %4 'other' float32[3, 4]
  constant %0 'scale' float32[4] {1, 2, 0.5, -1}
  constant %1 'two' float32[] {2}
  constant %2 'epsilon' float32[] {1e-05}
  %5 'square' float32[3, 4] = Pow-17(%3, %1)
  %6 'mean' float32[1, 4] = ReduceMean-17(%5) 'axes'=[0]
  %7 'sum' float32[1, 4] = Add-17(%6, %2)
  %8 'root' float32[1, 4] = Sqrt-17(%7)
  %9 'normal' float32[3, 4] = Div-17(%3, %8)
  %10 'a' float32[3, 4] = Mul-17(%9, %0)
  %11 'mean2' float32[3, 1] = ReduceMean-17(%5) 'axes'=[1]
  %12 'sum2' float32[3, 1] = Add-17(%11, %2)
  %13 'root2' float32[3, 1] = Sqrt-17(%12)
  %14 'normal2' float32[3, 4] = Div-17(%4, %13)
  %15 'b' float32[3, 4] = Mul-17(%14, %0)
  %16 'c' float32[3, 4] = Div-17(%3, %13)
  %17 'd' float32[3, 4] = Mul-17(%16, %0)
  output %10 'a'
  output %15 'b'
  output %16 'c'
  output %17 'd'
