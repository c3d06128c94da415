The maximum and the sum of a row are loop nests, what is cheap is not kept.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) { y = Softmax(x) }
====
b0: input float32[n, 8]  # x
b1: float32[n]
b2: float32[n, 8]
b3: float32[n]
b4: float32[n, 8]  # y
b1 = max over [8] [n]: load(b0, [i0, r0])
b2 = pointwise [n, 8]: exp(max(sub(load(b0, [i0, i1]), load(b1, [i0])), -87f))
b3 = sum over [8] [n]: load(b2, [i0, r0])
b4 = pointwise [n, 8]: %0 = load(b2, [i0, i1]); %1 = load(b3, [i0]); where(less(%0, mul(%1, 2e-38f)), 0f, mul(%0, div(1f, %1)))
output y = b4
