Updates of one place are added in the model's order, columns of them in vectors.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[4, 16] x, float[3, 16] u) => (float[4, 16] y) {
  i = Constant<value = int64[3, 1] {3, 1, 3}>()
  y = ScatterND<reduction = "add">(x, i, u)
}
====
extern "C" i64 k_243c0ea6c0591b7a(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* scratch) {
  if (begin >= end) return 0;
  const f32* __restrict const b0 = (const f32*)buffers[0];
  f32* __restrict const b1 = (f32*)buffers[1];
  {
    i64 v0 = 0;
    for (; v0 + W <= 64l; v0 += W) {
      const f32v x1 = ldv(b0 + v0);
      stv(b1 + v0, x1);
    }
  }
  return 0;
}
extern "C" i64 k_62ab898f3c8a7be7(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* scratch) {
  if (begin >= end) return 0;
  const f32* __restrict const b0 = (const f32*)buffers[0];
  f32* __restrict const b1 = (f32*)buffers[1];
  const i64* __restrict const b2 = (const i64*)buffers[2];
  {
    i64 v0 = 0;
    for (; v0 + 2 * W <= 16l; v0 += 2 * W) {
        const i64 v1 = v0 + 0 * W;
        const i64 v10 = v0 + 1 * W;
        for (i64 r2 = 0; r2 < 3l; ++r2) {
          const i64 x3 = v1 + 16l * r2;
          const i64 x12 = v10 + 16l * r2;
          const f32v x4 = ldv(b0 + x3);
          const f32v x13 = ldv(b0 + x12);
          const i64 x5 = b2[r2];
          const i64 x14 = b2[r2];
          const bool x6 = lt(x5, 0l);
          const bool x15 = lt(x14, 0l);
          const i64 x7 = 4l + x5;
          const i64 x16 = 4l + x14;
          const i64 x8 = sel(x6, x7, x5);
          const i64 x17 = sel(x15, x16, x14);
          if (unlikely((u64)x8 >= (u64)4l)) return failed(scratch, 1, x8, 4l, true);
          if (unlikely((u64)x17 >= (u64)4l)) return failed(scratch, 2, x17, 4l, true);
          const i64 x9 = v1 + 16l * x8;
          const i64 x18 = v10 + 16l * x17;
          stv(b1 + x9, ldv(b1 + x9) + x4);
          stv(b1 + x18, ldv(b1 + x18) + x13);
        }
    }
  }
  return 0;
}
