Equal nodes over equal inputs are one, also where their inputs become equal only by this.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N] x) => (float[N] y) {
  a = Exp (x)
  b = Exp (x)
  c = Neg (a)
  d = Neg (b)
  y = Add (c, d)
}
====
eliminate_common_subexpressions: 2
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N]
  %1 'a' float32[N] = Exp-17(%0)
  %3 'c' float32[N] = Neg-17(%1)
  %5 'y' float32[N] = Add-17(%3, %3)
  output %5 'y'
