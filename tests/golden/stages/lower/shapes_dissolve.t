A Reshape by sizes that are computed leaves no operation but the one that computes.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[batch, 4, 6] x) => (float[a, b] y) {
  s = Shape<end=1>(x) m = Constant<value_ints=[-1]>() t = Concat<axis=0>(s, m)
  r = Reshape(x, t) y = Relu(r)
}
====
