Attention of a contrib operator is one call, whose heads are views of what comes in.
----
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (float[1, 4, 8] q, float[1, 6, 8] k, float[1, 6, 8] v) => (float[1, 4, 8] y) {
  y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v)
}
====
group 0 reads [0, 1, 2] writes [3]
  Attention scale 0.5
group 1 reads [3] writes [4]
kernel outer [32]
  b0: read float32[32]
  b1: write float32[32]
  phase []
    b1[i0] = load(b0, [i0])
