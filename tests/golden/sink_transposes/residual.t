Two branches meet in an Add and part again; the graph output keeps one Transpose, which the branch had before.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 2, 3, 4] p, float[N, 2, 3, 4] q) => (float[N, 3, 4, 2] y, float[N, 2, 3, 4] z) {
  a = Transpose <perm = [0, 2, 3, 1]> (p)
  b = Transpose <perm = [0, 2, 3, 1]> (q)
  c = Relu (a)
  d = Add (c, b)
  y = Sigmoid (d)
  e = Tanh (d)
  f = Transpose <perm = [0, 3, 1, 2]> (e)
  z = Neg (f)
}
====
sink_transposes: 2
graph 'g'
  opset 'ai.onnx' 17
  input %0 'p' float32[N, 2, 3, 4]
  input %1 'q' float32[N, 2, 3, 4]
  %10 'c before transposition' float32[N, 2, 3, 4] = Relu-17(%0)
  %11 'd before transposition' float32[N, 2, 3, 4] = Add-17(%10, %1)
  %12 'y before transposition' float32[N, 2, 3, 4] = Sigmoid-17(%11)
  %6 'y' float32[N, 3, 4, 2] = Transpose-17(%12) 'perm'=[0, 2, 3, 1]
  %13 'e before transposition' float32[N, 2, 3, 4] = Tanh-17(%11)
  %9 'z' float32[N, 2, 3, 4] = Neg-17(%13)
  output %6 'y'
  output %9 'z'
