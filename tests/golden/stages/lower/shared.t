What is dear and read twice is kept in memory, what is cheap is computed twice.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n] x) => (float[n] y, float[n] z) { e = Exp(x) c = Neg(x) a = Add(e, c) y = Abs(a) b = Mul(e, c) z = Tanh(b) }
====
