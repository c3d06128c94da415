Windows with masks of their own, added where the batch is seen as [images, windows].
tolerance: 2e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[6, 2, 5, 4] q, float[6, 2, 4, 5] k, float[6, 2, 5, 3] v, float[1, 2, 5, 5] bias, float[1, 3, 1, 5, 5] mask)
  => (float[6, 2, 5, 3] y)
  <int64[5] split = {-1, 3, 2, 5, 5}, int64[4] joined = {-1, 2, 5, 5}>
{
  scores = MatMul (q, k)
  with_bias = Add (scores, bias)
  windows = Reshape (with_bias, split)
  masked = Add (windows, mask)
  seen = Reshape (masked, joined)
  p = Softmax <axis = -1> (seen)
  y = MatMul (p, v)
}
====
fuse_attention: 1
graph 'g'
  opset 'ai.onnx' 17
  input %2 'q' float32[6, 2, 5, 4]
  input %3 'k' float32[6, 2, 4, 5]
  input %4 'v' float32[6, 2, 5, 3]
  input %5 'bias' float32[1, 2, 5, 5]
  input %6 'mask' float32[1, 3, 1, 5, 5]
  constant %0 'split' int64[5] {-1, 3, 2, 5, 5}
  constant %1 'joined' int64[4] {-1, 2, 5, 5}
  %13 'y' float32[6, 2, 5, 3] = tensorbox.FusedAttention-1(%2, %3, %4, %6, %5) 'scale'=1f 'windows'=[3, 0] 'zero_undefined_rows'=0
  output %13 'y'
