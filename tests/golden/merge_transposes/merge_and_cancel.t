Two Transposes are one; inverse ones give an order that eliminate_no_ops takes away.
pass: merge_transposes, eliminate_no_ops
----
<ir_version: 8, opset_import: ["": 17]>
g (float[A, B, C] x) => (float[C, A, B] y, float[A, B, C] z) {
  a = Transpose <perm = [1, 2, 0]> (x)
  b = Transpose <perm = [1, 2, 0]> (a)
  y = Relu (b)
  c = Transpose <perm = [2, 0, 1]> (a)
  z = Relu (c)
}
====
merge_transposes: 2
eliminate_no_ops: 1
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[A, B, C]
  %2 'b' float32[C, A, B] = Transpose-17(%0) 'perm'=[2, 0, 1]
  %3 'y' float32[C, A, B] = Relu-17(%2)
  %5 'z' float32[A, B, C] = Relu-17(%0)
  output %3 'y'
  output %5 'z'
