A normalisation and the softmax behind it are one kernel of rows.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 16] x, float[16] s) => (float[n, 16] y) { a = LayerNormalization(x, s) y = Softmax(a) }
====
group 0 reads [0, 1] writes [9]
kernel outer [n]
  b0: read float32[16*n]
  b1: read float32[16]
  b2: row_local float32[16]
  b3: write float32[16*n]
  phase [16]
    acc0 sum= load(b0, [16*i0 + r0])
  phase []
    local0 = mul(0.0625f, acc0)
  phase [16]
    acc1 sum= %0 = sub(load(b0, [16*i0 + r0]), local0); mul(%0, %0)
  phase []
    local1 = reciprocal(sqrt(add(1e-05f, mul(0.0625f, acc1))))
  phase [16]
    acc2 max= mul(load(b1, [r0]), mul(sub(load(b0, [16*i0 + r0]), local0), local1))
  phase [16]
    acc3 sum= exp(max(sub(mul(load(b1, [r0]), mul(sub(load(b0, [16*i0 + r0]), local0), local1)), acc2), -87f))
    b2[r0] = exp(max(sub(mul(load(b1, [r0]), mul(sub(load(b0, [16*i0 + r0]), local0), local1)), acc2), -87f))
  phase [16]
    b3[16*i0 + r0] = %0 = load(b2, [r0]); where(less(%0, mul(2e-38f, acc3)), 0f, mul(%0, div(1f, acc3)))
