Three looks at a row that a core keeps: its greatest element, the sum of the exponentials, the shares.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[n, 32] x) => (float[n, 32] y) { y = Softmax(x) }
====
extern "C" i64 k_d10585682ce7fa87(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* scratch) {
  if (begin >= end) return 0;
  const i64 s0 = sizes[0];
  i64 p = begin * 16;
  const i64 pe = vmin(end * 16l, s0);
  i64 i0 = p;
  const f32* __restrict const b0 = (const f32*)buffers[0];
  f32* const b1 = (f32*)((char*)scratch + 0l);
  f32* __restrict const b2 = (f32*)buffers[2];
  for (; p < pe; ++p) {
    f32v a0 = vf32(f32(-__builtin_inf()));
    i64 v1 = 0;
    for (; v1 + W <= 32l; v1 += W) {
      const i64 x2 = 32l * i0 + v1;
      const f32v x3 = ldv(b0 + x2);
      a0 = vmax(a0, x3);
    }
    const f32 x4 = hmax(a0);
    f32v a5 = vf32(f32(0));
    i64 v6 = 0;
    const f32v x9 = vf32(x4);
    for (; v6 + W <= 32l; v6 += W) {
      const i64 x7 = 32l * i0 + v6;
      const f32v x8 = ldv(b0 + x7);
      const f32v x10 = x8 - x9;
      const f32v x11 = larger(vf32((-87.0f)), x10);
      const f32v x12 = m_exp(x11);
      a5 = a5 + x12;
      stv(b1 + v6, x12);
    }
    const f32 x13 = hsum(a5);
    i64 v14 = 0;
    const f32 x16 = 2e-38f * x13;
    const f32v x17 = vf32(x16);
    const f32 x19 = 1.0f / x13;
    const f32v x20 = vf32(x19);
    for (; v14 + W <= 32l; v14 += W) {
      const f32v x15 = ldv(b1 + v14);
      const i32v x18 = lt(x15, x17);
      const f32v x21 = x15 * x20;
      const f32v x22 = sel(x18, vf32(0.0f), x21);
      const i64 x23 = 32l * i0 + v14;
      stv(b2 + x23, x22);
    }
    ++i0;
  }
  return 0;
}
