A product of halves is one of float32, rounded to float16 only where the model stores it. Where float32 is to be bfloat16 in
memory, what was float16 is not.
----
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x, float[3, 4] w) => (bool[2, 4] y)
  <float zero = {0}>
{
  a = Cast <to = 10> (x)
  b = Cast <to = 10> (w)
  p = MatMul (a, b)
  r = Relu (p)
  f = Cast <to = 1> (r)
  y = Greater (f, zero)
}
====
widen_halves: 2
graph 'g'
  opset 'ai.onnx' 17
  input %1 'x' float32[2, 3]
  input %2 'w' float32[3, 4]
  constant %0 'zero' float32[] {0}
  %3 'a' float16[2, 3] = Cast-17(%1) 'to'=10
  %4 'b' float16[3, 4] = Cast-17(%2) 'to'=10
  %9 'a as float32' float32[2, 3] stored as float32 = Cast-13(%3) 'to'=1 # '/as_float32'
  %10 'b as float32' float32[3, 4] stored as float32 = Cast-13(%4) 'to'=1 # '/as_float32'
  %11 'p as float32' float32[2, 4] stored as float32 = MatMul-17(%9, %10)
  %12 'r as float32' float32[2, 4] stored as float32 = Relu-17(%11)
  %8 'y' bool[2, 4] = Greater-17(%12, %0)
  output %8 'y'
