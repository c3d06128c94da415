As the TorchScript exporter writes it before operator set 17.
tolerance: 1e-4
----
<ir_version: 8, opset_import: ["": 13]>
g (float[N, S, 4] x) => (float[N, S, 4] y)
  <float[4] scale = {1, 2, 0.5, -1}, float[4] bias = {0.1, 0.2, 0.3, 0.4}>
{
  mean = ReduceMean <axes = [-1]> (x)
  centred = Sub (x, mean)
  two = Constant <value = float {2.0}> ()
  square = Pow (centred, two)
  variance = ReduceMean <axes = [-1]> (square)
  epsilon = Constant <value = float {0.00001}> ()
  sum = Add (variance, epsilon)
  root = Sqrt (sum)
  normal = Div (centred, root)
  scaled = Mul (normal, scale)
  y = Add (scaled, bias)
}
====
fuse_layer_norm: 1
graph 'g'
  opset 'ai.onnx' 13
  input %2 'x' float32[N, S, 4]
  constant %0 'scale' float32[4] {1, 2, 0.5, -1}
  constant %1 'bias' float32[4] {0.1, 0.2, 0.3, 0.4}
  constant %5 'two' float32[] {2}
  constant %8 'epsilon' float32[] {1e-05}
  %13 'y' float32[N, S, 4] = LayerNormalization-17(%2, %0, %1) 'axis'=-1 'epsilon'=1e-05f
  output %13 'y'
