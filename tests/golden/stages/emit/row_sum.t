A sum of a row in vectors, and the work on it.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 24] x) => (float[n, 24] y) { a = Constant<value_ints=[1]>() s = ReduceSum(x, a) y = Sub(x, s) }
====
extern "C" i64 k_545eef15e93d8a3f(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* scratch) {
  if (begin >= end) return 0;
  const i64 s0 = sizes[0];
  i64 p = begin * 21;
  const i64 pe = vmin(end * 21l, s0);
  i64 i0 = p;
  const f32* __restrict const b0 = (const f32*)buffers[0];
  f32* __restrict const b1 = (f32*)buffers[1];
  for (; p < pe; ++p) {
    f32v a0 = vf32(f32(0));
    i64 v1 = 0;
    for (; v1 + W <= 24l; v1 += W) {
      const i64 x2 = 24l * i0 + v1;
      const f32v x3 = ldv(b0 + x2);
      a0 = a0 + x3;
    }
    const f32 x4 = hsum(a0);
    i64 v5 = 0;
    const f32v x8 = vf32(x4);
    for (; v5 + W <= 24l; v5 += W) {
      const i64 x6 = 24l * i0 + v5;
      const f32v x7 = ldv(b0 + x6);
      const f32v x9 = x7 - x8;
      stv(b1 + x6, x9);
    }
    ++i0;
  }
  return 0;
}
