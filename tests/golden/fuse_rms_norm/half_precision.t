Narrow types are widened, normalised, rounded and then scaled: what the operator does by itself.
tolerance: 2e-3
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x32) => (float[N, 4] y)
  <float16[4] scale = {15360, 16384, 14336, 48128}, float two = {2}, float epsilon = {0.00001}>
{
  x16 = Cast <to = 10> (x32)
  x = Cast <to = 1> (x16)
  square = Pow (x, two)
  mean = ReduceMean <axes = [-1]> (square)
  sum = Add (mean, epsilon)
  root = Sqrt (sum)
  inverse = Reciprocal (root)
  normal = Mul (x, inverse)
  narrow = Cast <to = 10> (normal)
  y16 = Mul (scale, narrow)
  y = Cast <to = 1> (y16)
}
====
fuse_rms_norm: 1
graph 'g'
  opset 'ai.onnx' 17
  input %3 'x32' float32[N, 4]
  constant %0 'scale' float16[4] {1, 2, 0.5, -1}
  constant %1 'two' float32[] {2}
  constant %2 'epsilon' float32[] {1e-05}
  %4 'x16' float16[N, 4] = Cast-17(%3) 'to'=10
  %13 'y16' float16[N, 4] = RMSNormalization-23(%4, %0) 'axis'=-1 'epsilon'=1e-05f
  %14 'y' float32[N, 4] = Cast-17(%13) 'to'=1
  output %14 'y'
