The scale on both sides, k transposed, a mask and a guard against NaN as in torch's exporter; then the scale on the product, three dimensions and no mask.
tolerance: 2e-5
----
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 600, 4] q, float[1, 2, 600, 4] k, float[1, 2, 600, 3] v, float[1, 1, 600, 600] mask,
   float[2, 1024, 4] r, float[2, 4, 256] s, float[2, 256, 3] t)
  => (float[1, 2, 600, 3] y, float[2, 1024, 3] z)
  <float root = {0.7}, float zero = {0}, float[1] two = {2}>
{
  a = Mul (q, root)
  b = Transpose <perm = [0, 1, 3, 2]> (k)
  c = Mul (b, root)
  scores = MatMul (a, c)
  masked = Add (scores, mask)
  p = Softmax <axis = -1> (masked)
  undefined = IsNaN (p)
  guarded = Where (undefined, zero, p)
  y = MatMul (guarded, v)
  scores2 = MatMul (r, s)
  scaled2 = Div (scores2, two)
  p2 = Softmax <axis = 2> (scaled2)
  z = MatMul (p2, t)
}
====
fuse_attention: 2
graph 'g'
  opset 'ai.onnx' 17
  input %3 'q' float32[1, 2, 600, 4]
  input %4 'k' float32[1, 2, 600, 4]
  input %5 'v' float32[1, 2, 600, 3]
  input %6 'mask' float32[1, 1, 600, 600]
  input %7 'r' float32[2, 1024, 4]
  input %8 's' float32[2, 4, 256]
  input %9 't' float32[2, 256, 3]
  constant %0 'root' float32[] {0.7}
  constant %1 'zero' float32[] {0}
  constant %2 'two' float32[1] {2}
  %11 'b' float32[1, 2, 4, 600] = Transpose-17(%4) 'perm'=[0, 1, 3, 2]
  %18 'y' float32[1, 2, 600, 3] = tensorbox.FusedAttention-1(%3, %11, %5, %6) 'scale'=0.49f 'zero_undefined_rows'=1
  %22 'z' float32[2, 1024, 3] = tensorbox.FusedAttention-1(%7, %8, %9) 'scale'=0.5f 'zero_undefined_rows'=0
  output %18 'y'
  output %22 'z'
