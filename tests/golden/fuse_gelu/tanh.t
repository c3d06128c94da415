The tanh form; the cube is a power here.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 5] x) => (float[N, 5] y) {
  three = Constant <value = float {3.0}> ()
  small = Constant <value = float {0.044715}> ()
  root = Constant <value = float {0.7978846}> ()
  one = Constant <value = float {1.0}> ()
  half = Constant <value = float {0.5}> ()
  cube = Pow (x, three)
  a = Mul (cube, small)
  b = Add (x, a)
  c = Mul (b, root)
  d = Tanh (c)
  e = Add (one, d)
  f = Mul (half, x)
  y = Mul (f, e)
}
====
fuse_gelu: 1
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N, 5]
  constant %1 'three' float32[] {3}
  constant %2 'small' float32[] {0.044715}
  constant %3 'root' float32[] {0.797885}
  constant %4 'one' float32[] {1}
  constant %5 'half' float32[] {0.5}
  %13 'y' float32[N, 5] = Gelu-20(%0) 'approximate'='tanh'
  output %13 'y'
