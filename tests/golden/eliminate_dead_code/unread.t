A chain that nobody reads goes from its end to its beginning.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N] x) => (float[N] y) {
  a = Exp (x)
  b = Neg (a)
  c = Sqrt (a)
  y = Relu (x)
}
====
eliminate_dead_code: 3
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N]
  %4 'y' float32[N] = Relu-17(%0)
  output %4 'y'
