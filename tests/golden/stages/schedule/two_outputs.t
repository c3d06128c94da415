Loop nests over the same points are one kernel, whoever reads them.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y, float[n, 1] m) { a = Constant<value_ints=[1]>() y = Exp(x) m = ReduceMax(x, a) }
====
