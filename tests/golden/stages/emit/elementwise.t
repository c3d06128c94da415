One loop of vectors with a masked rest.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n] x, float[n] y) => (float[n] z) { s = Add(x, y) z = Relu(s) }
====
extern "C" i64 k_6b5220a2c08d2e1c(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* scratch) {
  if (begin >= end) return 0;
  const i64 s0 = sizes[0];
  const i64 x0 = s0 + 1023l;
  const i64 x1 = udiv(x0, 1024l);
  i64 c = begin;
  const f32* __restrict const b0 = (const f32*)buffers[0];
  const f32* __restrict const b1 = (const f32*)buffers[1];
  f32* __restrict const b2 = (f32*)buffers[2];
  for (i64 t = begin; t < end; ++t) {
    const i64 lo = c * 1024, hi = vmin(lo + 1024l, s0);
    i64 v2 = lo;
    for (; v2 + W <= hi; v2 += W) {
      const f32v x3 = ldv(b0 + v2);
      const f32v x4 = ldv(b1 + v2);
      const f32v x5 = x3 + x4;
      const f32v x6 = larger(vf32(0.0f), x5);
      stv(b2 + v2, x6);
    }
    if (v2 < hi) {
      const i64 n7 = hi - v2;
      const f32v x8 = ldn(b0 + v2, n7);
      const f32v x9 = ldn(b1 + v2, n7);
      const f32v x10 = x8 + x9;
      const f32v x11 = larger(vf32(0.0f), x10);
      stn(b2 + v2, x11, n7);
    }
    ++c;
  }
  return 0;
}
