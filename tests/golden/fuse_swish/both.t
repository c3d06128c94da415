x times its Sigmoid; x times HardSigmoid with 1/6 and 1/2, and not with other numbers.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 5] x) => (float[N, 5] a, float[N, 5] b, float[N, 5] c) {
  s = Sigmoid (x)
  a = Mul (s, x)
  h = HardSigmoid <alpha = 0.1666667, beta = 0.5> (x)
  b = Mul (x, h)
  i = HardSigmoid (x)
  c = Mul (x, i)
}
====
fuse_swish: 2
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N, 5]
  %2 'a' float32[N, 5] = Swish-24(%0) 'alpha'=1f
  %4 'b' float32[N, 5] = HardSwish-14(%0)
  %5 'i' float32[N, 5] = HardSigmoid-17(%0)
  %6 'c' float32[N, 5] = Mul-17(%0, %5)
  output %2 'a'
  output %4 'b'
  output %6 'c'
