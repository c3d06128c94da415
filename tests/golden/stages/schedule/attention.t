The body that ONNX defines, as the graph passes have not seen it: two products around the shares of each row.
----
<ir_version: 10, opset_import: ["": 23]>
g (float[1, n, 8] q, float[1, n, 8] k, float[1, n, 8] v) => (float[1, n, 8] y) {
  y = Attention<q_num_heads=2, kv_num_heads=2>(q, k, v)
}
====
group 0 reads [0] writes [4]
kernel outer [2, n, 4]
  b0: read float32[8*n]
  b1: write float32[8*n]
  phase []
    b1[i2 + 4*i1 + 4*n*i0] = mul(0.70710677f, load(b0, [i2 + 8*i1 + 4*i0]))
group 1 reads [1] writes [5]
kernel outer [8, n]
  b0: read float32[8*n]
  b1: write float32[8*n]
  phase []
    b1[i1 + n*i0] = mul(0.70710677f, load(b0, [8*i1 + i0]))
group 2 reads [4, 5] writes [7]
  MatMul +linear(1, 0)
group 3 reads [] writes [12]
kernel outer [n]
  b0: write float32[n]
  phase [n]
    acc0 max= 0f
  phase []
    b0[i0] = acc0
group 4 reads [7, 12] writes [14]
kernel outer [2, n]
  b0: read float32[2*n*n]
  b1: read float32[n]
  b2: row_local float32[n]
  b3: write float32[2*n*n]
  phase [n]
    acc0 max= load(b0, [r0 + n*i1 + n*n*i0])
  phase [n]
    acc1 sum= exp(max(sub(load(b0, [r0 + n*i1 + n*n*i0]), acc0), -87f))
    b2[r0] = exp(max(sub(load(b0, [r0 + n*i1 + n*n*i0]), acc0), -87f))
  phase [n]
    b3[r0 + n*i1 + n*n*i0] = %0 = load(b2, [r0]); where(equal(-inff, load(b1, [i1])), 0f, where(less(%0, mul(2e-38f, acc1)), 0f, mul(%0, div(1f, acc1))))
group 5 reads [14, 2] writes [15]
  MatMul
group 6 reads [15] writes [16]
kernel outer [n, 8]
  b0: read float32[8*n]
  b1: write float32[8*n]
  phase []
    b1[i1 + 8*i0] = load(b0, [4*i0 + i1%4 + 4*n*(i1//4)])
