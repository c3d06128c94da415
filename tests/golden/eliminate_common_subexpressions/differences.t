Another attribute, another order of inputs, or random numbers: not the same.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N] x, float[N] z) => (float[N] y) {
  a = LeakyRelu <alpha = 0.1> (x)
  b = LeakyRelu <alpha = 0.2> (x)
  c = Sub (a, z)
  d = Sub (z, a)
  e = Add (c, d)
  y = Mul (e, b)
}
====
eliminate_common_subexpressions: 0
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N]
  input %1 'z' float32[N]
  %2 'a' float32[N] = LeakyRelu-17(%0) 'alpha'=0.1f
  %3 'b' float32[N] = LeakyRelu-17(%0) 'alpha'=0.2f
  %4 'c' float32[N] = Sub-17(%2, %1)
  %5 'd' float32[N] = Sub-17(%1, %2)
  %6 'e' float32[N] = Add-17(%4, %5)
  %7 'y' float32[N] = Mul-17(%6, %3)
  output %7 'y'
