The exact form with its three factors nested in two ways.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 5] x) => (float[N, 5] y, float[N, 5] z) {
  root = Constant <value = float {1.4142135}> ()
  one = Constant <value = float {1.0}> ()
  half = Constant <value = float {0.5}> ()
  scaled = Div (x, root)
  e = Erf (scaled)
  sum = Add (e, one)
  a = Mul (x, sum)
  y = Mul (a, half)
  b = Mul (half, sum)
  z = Mul (b, x)
}
====
fuse_gelu: 2
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N, 5]
  constant %1 'root' float32[] {1.41421}
  constant %2 'one' float32[] {1}
  constant %3 'half' float32[] {0.5}
  %8 'y' float32[N, 5] = Gelu-20(%0) 'approximate'='none'
  %10 'z' float32[N, 5] = Gelu-20(%0) 'approximate'='none'
  output %8 'y'
  output %10 'z'
