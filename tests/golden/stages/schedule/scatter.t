A scatter writes into a copy of its data: columns side by side, the updates of one in their order.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[4, n] x, float[2, n] u) => (float[4, n] y) {
  i = Constant<value = int64[2, 1] {3, 1}>()
  y = ScatterND<reduction = "add">(x, i, u)
}
====
group 0 reads [0] writes [3]
kernel outer [4*n]
  b0: read float32[4*n]
  b1: write float32[4*n]
  phase []
    b1[i0] = load(b0, [i0])
group 1 reads [1, 3, 2] writes [3]
kernel outer [n]
  b0: read float32[2*n]
  b1: read_write float32[4*n]
  b2: read int64[2]
  phase [2]
    b1[i0 + n*[%0 = load(b2, [r0]); where(less(%0, 0), add(4, %0), %0) < 4]] += load(b0, [i0 + n*r0])
