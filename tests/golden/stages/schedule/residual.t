Bias, activation and residual are done by the convolutions.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[1, 2, 4, 4] x, float[2, 2, 3, 3] w, float[2] b) => (float[1, 2, 4, 4] y) {
  r = Sigmoid(x)
  c = Conv<pads=[1, 1, 1, 1]>(r, w, b) d = Relu(c)
  e = Conv<pads=[1, 1, 1, 1]>(d, w, b) s = Add(e, r) y = Relu(s)
}
====
group 0 reads [0] writes [3]
kernel outer [16, 2]
  b0: read float32[32]
  b1: write float32[32]
  phase []
    b1[2*i0 + i1] = sigmoid(load(b0, [i0 + 16*i1]))
group 1 reads [3, 1, 2] writes [5]
  Conv group 1 strides [1, 1] dilations [1, 1] pads [1, 1][1, 1] +bias +relu
group 2 reads [5, 1, 2, 3] writes [8]
  Conv group 1 strides [1, 1] dilations [1, 1] pads [1, 1][1, 1] +bias +sum(#3) +relu
group 3 reads [3] writes [7]
kernel outer [4, 2, 4]
  b0: read float32[32]
  b1: write float32[32]
  phase []
    b1[4*i0 + 16*i1 + i2] = load(b0, [8*i0 + i1 + 2*i2])
