One query over keys and values that three heads share each, repeated as torch's exporter writes it: the kernel takes them as they were.
tolerance: 2e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 6, 1, 4] q, float[1, 2, 9, 4] k, float[1, 2, 9, 3] v, float[1, 1, 1, 9] mask) => (float[1, 6, 1, 3] y)
  <int64[1] axis = {2}, int64[5] repeat = {1, 1, 3, 1, 1}, int64[4] heads_k = {1, 6, 9, 4}, int64[4] heads_v = {1, 6, 9, 3},
   int64[3] joined = {-1, 9, 4}, int64[4] split = {1, 6, 4, 9}, float root = {0.7}>
{
  k5 = Unsqueeze (k, axis)
  k_all = Expand (k5, repeat)
  k_heads = Reshape (k_all, heads_k)
  k_joined = Reshape (k_heads, joined)
  k_swapped = Transpose <perm = [0, 2, 1]> (k_joined)
  k_split = Reshape (k_swapped, split)
  k_scaled = Mul (k_split, root)
  v5 = Unsqueeze (v, axis)
  v_all = Expand (v5, repeat)
  v_heads = Reshape (v_all, heads_v)
  q_scaled = Mul (q, root)
  scores = MatMul (q_scaled, k_scaled)
  masked = Add (scores, mask)
  p = Softmax <axis = -1> (masked)
  y = MatMul (p, v_heads)
}
====
fuse_attention: 1
graph 'g'
  opset 'ai.onnx' 17
  input %7 'q' float32[1, 6, 1, 4]
  input %8 'k' float32[1, 2, 9, 4]
  input %9 'v' float32[1, 2, 9, 3]
  input %10 'mask' float32[1, 1, 1, 9]
  constant %0 'axis' int64[1] {2}
  constant %1 'repeat' int64[5] {1, 1, 3, 1, 1}
  constant %2 'heads_k' int64[4] {1, 6, 9, 4}
  constant %3 'heads_v' int64[4] {1, 6, 9, 3}
  constant %4 'joined' int64[3] {-1, 9, 4}
  constant %5 'split' int64[4] {1, 6, 4, 9}
  constant %6 'root' float32[] {0.7}
  %11 'k5' float32[1, 2, 1, 9, 4] = Unsqueeze-17(%8, %0)
  %12 'k_all' float32[1, 2, 3, 9, 4] = Expand-17(%11, %1)
  %13 'k_heads' float32[1, 6, 9, 4] = Reshape-17(%12, %2)
  %14 'k_joined' float32[6, 9, 4] = Reshape-17(%13, %4)
  %15 'k_swapped' float32[6, 4, 9] = Transpose-17(%14) 'perm'=[0, 2, 1]
  %16 'k_split' float32[1, 6, 4, 9] = Reshape-17(%15, %5)
  %18 'v5' float32[1, 2, 1, 9, 3] = Unsqueeze-17(%9, %0)
  %19 'v_all' float32[1, 2, 3, 9, 3] = Expand-17(%18, %1)
  %20 'v_heads' float32[1, 6, 9, 3] = Reshape-17(%19, %3)
  %25 'y' float32[1, 6, 1, 3] = tensorbox.FusedAttention-1(%7, %16, %20, %10) 'scale'=0.49f 'zero_undefined_rows'=0
  output %25 'y'
