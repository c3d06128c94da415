A row that no cache of a core holds is reduced in parts, and then they are.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[1, 262144] x) => (float[1, 1] y) { y = ReduceMax<keepdims = 1>(x) }
====
group 0 reads [0] writes [1]
kernel outer [256]
  b0: read float32[262144]
  b1: write float32[256]
  phase [1024]
    acc0 max= load(b0, [r0 + 1024*i0])
  phase []
    b1[i0] = acc0
group 1 reads [1] writes [3]
kernel outer []
  b0: read float32[256]
  b1: write float32[1]
  phase [256]
    acc0 max= load(b0, [r0])
  phase []
    local0 = acc0
    b1[0] = local0
