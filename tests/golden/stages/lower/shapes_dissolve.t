A Reshape by sizes that are computed leaves no operation but the one that computes.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[batch, 4, 6] x) => (float[a, b] y) {
  s = Shape<end=1>(x) m = Constant<value_ints=[-1]>() t = Concat<axis=0>(s, m)
  r = Reshape(x, t) y = Relu(r)
}
====
b0: input float32[batch, 4, 6]  # x
b1: float32[batch, 24]  # y
b1 = pointwise [batch, 24]: max(load(b0, [i0, i1//6, i1%6]), 0f)
output y = b1
