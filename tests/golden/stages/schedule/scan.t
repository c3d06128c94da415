Running sums go along their axis in order, and over the others side by side.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 32] x) => (float[n, 32] y) {
  a = Constant<value_int = 1>()
  s = CumSum<exclusive = 1>(x, a) y = Neg(s)
}
====
group 0 reads [0] writes [1]
kernel outer [n]
  b0: read float32[32*n]
  b1: write float32[32*n]
  phase [32]
    b1[32*i0 + r0] = exclusive scan sum load(b0, [32*i0 + r0])
group 1 reads [1] writes [2]
kernel outer [32*n]
  b0: read float32[32*n]
  b1: write float32[32*n]
  phase []
    b1[i0] = neg(load(b0, [i0]))
