A sum of a row in vectors, and the work on it.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 24] x) => (float[n, 24] y) { a = Constant<value_ints=[1]>() s = ReduceSum(x, a) y = Sub(x, s) }
====
