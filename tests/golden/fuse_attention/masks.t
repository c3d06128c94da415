Masks on either side of sums, a sum of masks, and sizes that only a run knows: one node with all of them.
tolerance: 2e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, N, 4] q, float[1, 2, 4, T] k, float[1, 2, T, 3] v, float[1, 2, N, T] bias, float[1, 1, 1, T] mask, float[N, T] causal)
  => (float[1, 2, N, 3] y)
  <float half = {0.5}>
{
  scores = MatMul (q, k)
  scaled = Mul (half, scores)
  with_bias = Add (bias, scaled)
  two = Add (mask, causal)
  masked = Add (two, with_bias)
  p = Softmax <axis = -1> (masked)
  y = MatMul (p, v)
}
====
fuse_attention: 1
graph 'g'
  opset 'ai.onnx' 17
  input %1 'q' float32[1, 2, N, 4]
  input %2 'k' float32[1, 2, 4, T]
  input %3 'v' float32[1, 2, T, 3]
  input %4 'bias' float32[1, 2, N, T]
  input %5 'mask' float32[1, 1, 1, T]
  input %6 'causal' float32[N, T]
  constant %0 'half' float32[] {0.5}
  %10 'two' float32[1, 1, N, T] = Add-17(%5, %6)
  %13 'y' float32[1, 2, N, 3] = tensorbox.FusedAttention-1(%1, %2, %3, %10, %4) 'scale'=0.5f 'zero_undefined_rows'=0
  output %13 'y'
