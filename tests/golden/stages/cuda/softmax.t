A warp for each of many rows, whose elements stay in its registers.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[4096, 64] x) => (float[4096, 64] y) { y = Softmax(x) }
====
namespace tbx {
extern "C" __global__ void __launch_bounds__(128) k_0e94fe8a53c52914(const f32* __restrict b0, f32* __restrict b2, i64 begin, i64 end, void* scratch, i64* error) {
  LANES(4)
  using team = warp_team;
  for (i64 p = begin + team::number(); p < end; p += team::count()) {
    f32v h0[1];
    f32v h1[1];
    const i64 q2 = p;
    f32v a3 = vf32(f32(-__builtin_inf()));
    _Pragma("unroll") for (i32 j4 = 0; j4 < 1; ++j4) {
      const i64 r5 = (j4 * 32 + team::rank()) * 4;
      if (r5 < 64) {
        const i64 q6 = r5;
        const i64 x7 = 64l * q2 + q6;
        const f32v x8 = load_lanes<W, 16>(b0 + x7);
        h0[j4] = x8;
        a3 = vmax(a3, x8);
      }
    }
    const f32 x9 = hmax(a3);
    f32v a10 = vf32(f32(0));
    const f32v x14 = vf32(x9);
    _Pragma("unroll") for (i32 j11 = 0; j11 < 1; ++j11) {
      const i64 r12 = (j11 * 32 + team::rank()) * 4;
      if (r12 < 64) {
        const i64 q13 = r12;
        const f32v x15 = h0[j11] - x14;
        const f32v x16 = m_exp(x15);
        a10 = a10 + x16;
        h1[j11] = x16;
      }
    }
    const f32 x17 = hsum(a10);
    const f32 x22 = 1.0f / x17;
    const f32v x23 = vf32(x22);
    _Pragma("unroll") for (i32 j18 = 0; j18 < 1; ++j18) {
      const i64 r19 = (j18 * 32 + team::rank()) * 4;
      if (r19 < 64) {
        const i64 q20 = r19;
        const f32v x21 = h1[j18];
        const f32v x24 = x21 * x23;
        const i64 x25 = 64l * q2 + q20;
        store_lanes<16>(b2 + x25, x24);
      }
    }
  }
}
}
