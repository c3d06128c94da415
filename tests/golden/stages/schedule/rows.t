A normalisation and the softmax behind it are one kernel of rows.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 16] x, float[16] s) => (float[n, 16] y) { a = LayerNormalization(x, s) y = Softmax(a) }
====
