One loop of vectors with a masked rest.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n] x, float[n] y) => (float[n] z) { s = Add(x, y) z = Relu(s) }
====
