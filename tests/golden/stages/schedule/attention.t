The body that ONNX defines, as the graph passes have not seen it: two products around the shares of each row.
----
<ir_version: 10, opset_import: ["": 23]>
g (float[1, n, 8] q, float[1, n, 8] k, float[1, n, 8] v) => (float[1, n, 8] y) {
  y = Attention<q_num_heads=2, kv_num_heads=2>(q, k, v)
}
====
group 0 reads [0, 1, 2] writes [3]
  Attention scale 0.5 0 for hidden rows
group 1 reads [3] writes [4]
kernel outer [8*n]
  b0: read float32[8*n]
  b1: write float32[8*n]
  phase []
    b1[i0] = load(b0, [i0])
