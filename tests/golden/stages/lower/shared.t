What is dear and read twice is kept in memory, what is cheap is computed twice.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n] x) => (float[n] y, float[n] z) { e = Exp(x) c = Neg(x) a = Add(e, c) y = Abs(a) b = Mul(e, c) z = Tanh(b) }
====
b0: input float32[n]  # x
b1: float32[n]  # e
b2: float32[n]  # y
b3: float32[n]  # z
b1 = pointwise [n]: exp(load(b0, [i0]))
b2 = pointwise [n]: abs(add(neg(load(b0, [i0])), load(b1, [i0])))
b3 = pointwise [n]: tanh(mul(neg(load(b0, [i0])), load(b1, [i0])))
output y = b2
output z = b3
