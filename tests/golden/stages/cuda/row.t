A block for each of few rows, whose elements stay in the registers of its threads.
----
<ir_version: 10, opset_import: ["": 21]>
g (float[2, 12000] x) => (float[2, 12000] y) { a = Constant<value_ints=[1]>() s = ReduceMax(x, a) y = Sub(x, s) }
====
namespace tbx {
extern "C" __global__ void __launch_bounds__(1024) k_63f72239107258c4(const f32* b0, f32* b1, i64 begin, i64 end, void* scratch, i64* error) {
BESIDE
  LANES(4)
  using team = block_of<1024>;
  for (i64 p = begin + team::number(); p < end; p += team::count()) {
    f32v h0[3];
    const i64 q1 = p;
    f32v a2 = vf32(f32(-__builtin_inf()));
    _Pragma("unroll") for (i32 j3 = 0; j3 < 3; ++j3) {
      const i64 r4 = (j3 * 1024 + team::rank()) * 4;
      if (r4 < 12000) {
        const i64 q5 = r4;
        const i64 x6 = 12000l * q1 + q5;
        const f32v x7 = load_lanes<W, 16>(b0 + x6);
        h0[j3] = x7;
        a2 = vmax(a2, x7);
      }
    }
    const f32 x8 = hmax(a2);
    const f32v x12 = vf32(x8);
    _Pragma("unroll") for (i32 j9 = 0; j9 < 3; ++j9) {
      const i64 r10 = (j9 * 1024 + team::rank()) * 4;
      if (r10 < 12000) {
        const i64 q11 = r10;
        const f32v x13 = h0[j9] - x12;
        const i64 x14 = 12000l * q1 + q11;
        store_lanes<16>(b1 + x14, x13);
      }
    }
  }
}
}
