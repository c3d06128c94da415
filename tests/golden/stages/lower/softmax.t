The maximum and the sum of a row are loop nests, what is cheap is not kept.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) { y = Softmax(x) }
====
