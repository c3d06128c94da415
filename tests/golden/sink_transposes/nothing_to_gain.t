A Transpose that meets no other one stays where it is: moving it would only change who copies.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 2, 3, 4] x, float[N, 3, 4, 2] other) => (float[N, 3, 4, 2] y, float[N, 2, 3, 4] z) {
  a = Transpose <perm = [0, 2, 3, 1]> (x)
  y = Relu (a)
  b = Add (a, other)
  z = Transpose <perm = [0, 3, 1, 2]> (b)
}
====
sink_transposes: 0
graph 'g'
  opset 'ai.onnx' 17
  input %0 'x' float32[N, 2, 3, 4]
  input %1 'other' float32[N, 3, 4, 2]
  %2 'a' float32[N, 3, 4, 2] = Transpose-17(%0) 'perm'=[0, 2, 3, 1]
  %3 'y' float32[N, 3, 4, 2] = Relu-17(%2)
  %4 'b' float32[N, 3, 4, 2] = Add-17(%2, %1)
  %5 'z' float32[N, 2, 3, 4] = Transpose-17(%4) 'perm'=[0, 3, 1, 2]
  output %3 'y'
  output %5 'z'
