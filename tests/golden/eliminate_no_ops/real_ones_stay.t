A Cast to another type and a Transpose that moves something stay.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[3, 2] y) {
  a = Cast <to = 11> (x)
  b = Transpose <perm = [1, 0]> (a)
  c = Cast <to = 1> (b)
  y = Relu (c)
}
====
eliminate_no_ops: 0
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[2, 3]
  %1 'a' float64[2, 3] = Cast-17(%0) 'to'=11
  %2 'b' float64[3, 2] = Transpose-17(%1) 'perm'=[1, 0]
  %3 'c' float32[3, 2] = Cast-17(%2) 'to'=1
  %4 'y' float32[3, 2] = Relu-17(%3)
  output %4 'y'
