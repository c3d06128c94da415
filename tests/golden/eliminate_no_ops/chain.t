Identity, Cast to the same type, Dropout in inference and a Transpose in order go; a graph output keeps its node.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x) => (float[N, 3] y, float[N, 3] z) {
  a = Identity (x)
  b = Cast <to = 1> (a)
  c = Transpose <perm = [0, 1]> (b)
  d = Dropout (c)
  y = Relu (d)
  z = Identity (x)
}
====
eliminate_no_ops: 4
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N, 3]
  %5 'y' float32[N, 3] = Relu-17(%0)
  %6 'z' float32[N, 3] = Identity-17(%0)
  output %5 'y'
  output %6 'z'
