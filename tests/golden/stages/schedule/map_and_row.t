A map over all elements and a maximum per row share no points: two kernels.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y, float[n, 1] m) { a = Constant<value_ints=[1]>() y = Exp(x) m = ReduceMax(x, a) }
====
group 0 reads [0] writes [1]
kernel outer [8*n]
  b0: read float32[8*n]
  b1: write float32[8*n]
  phase []
    b1[i0] = exp(load(b0, [i0]))
group 1 reads [0] writes [3]
kernel outer [n]
  b0: read float32[8*n]
  b1: write float32[n]
  phase [8]
    acc0 max= load(b0, [8*i0 + r0])
  phase []
    local0 = acc0
    b1[i0] = local0
