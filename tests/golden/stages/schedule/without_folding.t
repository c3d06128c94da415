The same without that step: the tables are computed in every run.
disabled: fold_operations
----
<ir_version: 10, opset_import: ["": 21]>
g (float[1, 1, 3] x) => (float[1, 1, 6] y) {
  s = Constant<value_floats=[1.0, 1.0, 2.0]>() y = Resize<mode="linear">(x, "", s)
}
====
group 0 reads [] writes [1]
kernel outer [2, 6]
  b0: write int32[12]
  phase []
    b0[6*i0 + i1] = int32(min(max(add(int64(floor(sub(mul(0.5f, add(float32(i1), 0.5f)), 0.5f))), i0), 0), 2))
group 1 reads [] writes [2]
kernel outer [2, 6]
  b0: write float32[12]
  phase []
    b0[6*i0 + i1] = %0 = sub(mul(0.5f, add(float32(i1), 0.5f)), 0.5f); max(sub(1f, abs(sub(add(floor(%0), float32(i0)), %0))), 0f)
group 2 reads [1, 0, 2] writes [3]
kernel outer [6]
  b0: read int32[12]
  b1: read float32[3]
  b2: read float32[12]
  b3: write float32[6]
  phase []
    b3[i0] = add(mul(load(b1, [[int64(load(b0, [i0])) < 3]]), load(b2, [i0])), mul(load(b1, [[int64(load(b0, [i0 + 6])) < 3]]), load(b2, [i0 + 6])))
