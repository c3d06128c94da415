A chain over constants is computed now, whatever its operators; the node that reads an input stays.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[2, 3] y)
  <float[3, 2] w = {1, 2, 3, 4, 5, 6}>
{
  t = Transpose <perm = [1, 0]> (w)
  half = Constant <value = float {0.5}> ()
  scaled = Mul (t, half)
  y = Add (x, scaled)
}
====
fold_constants: 2
graph 'g'
  opset 'ai.onnx' 17
  input %1 'x' float32[2, 3]
  constant %0 'w' float32[3, 2] {1, 2, 3, 4, 5, 6}
  constant %2 't' float32[2, 3] {1, 3, 5, 2, 4, 6}
  constant %3 'half' float32[] {0.5}
  constant %4 'scaled' float32[2, 3] {0.5, 1.5, 2.5, 1, 2, 3}
  %5 'y' float32[2, 3] = Add-17(%1, %4)
  output %5 'y'
