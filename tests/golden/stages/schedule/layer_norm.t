A mean, the squares around it and what is made of both are one kernel over rows.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 16] x, float[16] scale, float[16] bias) => (float[n, 16] y) { y = LayerNormalization(x, scale, bias) }
====
group 0 reads [0, 2, 1] writes [7]
kernel outer [n]
  b0: read float32[16*n]
  b1: read float32[16]
  b2: read float32[16]
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
    b3[16*i0 + r0] = add(load(b1, [r0]), mul(load(b2, [r0]), mul(sub(load(b0, [16*i0 + r0]), local0), local1)))
