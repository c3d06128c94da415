Lists are compared as wholes, floats by their bits.
----
<ir_version: 8, opset_import: ["": 13, "ai.onnx.ml": 1]>
g (float[2, 3, 4] x, float[5, 2] w) => (float[3, 2, 4] y, float[4, 3, 2] z, float[5, 2] u, float[5, 2] v) {
  a = Transpose <perm = [1, 0, 2]> (x)
  b = Transpose <perm = [2, 1, 0]> (x)
  c = Transpose <perm = [1, 0, 2]> (x)
  y = Add (a, c)
  z = Abs (b)
  d = ai.onnx.ml.Scaler <offset = [0.0, 1.0], scale = [1.0, 2.0]> (w)
  e = ai.onnx.ml.Scaler <offset = [-0.0, 1.0], scale = [1.0, 2.0]> (w)
  f = ai.onnx.ml.Scaler <offset = [0.0, 1.0], scale = [1.0, 2.0]> (w)
  u = Add (d, e)
  v = Add (d, f)
}
====
eliminate_common_subexpressions: 2
graph 'g'
  opset 'ai.onnx' 13
  opset 'ai.onnx.ml' 1
  input %0 'x' float32[2, 3, 4]
  input %1 'w' float32[5, 2]
  %2 'a' float32[3, 2, 4] = Transpose-13(%0) 'perm'=[1, 0, 2]
  %3 'b' float32[4, 3, 2] = Transpose-13(%0) 'perm'=[2, 1, 0]
  %5 'y' float32[3, 2, 4] = Add-13(%2, %2)
  %6 'z' float32[4, 3, 2] = Abs-13(%3)
  %7 'd' float32[?] = ai.onnx.ml.Scaler-1(%1) 'offset'=[0, 1] 'scale'=[1, 2]
  %8 'e' float32[?] = ai.onnx.ml.Scaler-1(%1) 'offset'=[-0, 1] 'scale'=[1, 2]
  %10 'u' float32[5, 2] = Add-13(%7, %8)
  %11 'v' float32[5, 2] = Add-13(%7, %7)
  output %5 'y'
  output %6 'z'
  output %10 'u'
  output %11 'v'
