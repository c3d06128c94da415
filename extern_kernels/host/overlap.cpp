#include "extern_kernels/host/overlap.h"

#include "base/isa.h"

namespace tbx::extern_kernels {
namespace {

typedef float Lanes __attribute__((vector_size(64), may_alias));
typedef int32_t Mask __attribute__((vector_size(64), may_alias));
constexpr int64_t kWidth = 16;

[[gnu::always_inline]] inline bool any_set(const Mask& m) {
  uint64_t words[8];
  __builtin_memcpy(words, &m, sizeof words);
  return (words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7]) != 0;
}

/// One body for all instruction sets. No product is added to: a fused one would round differently from
/// machine to machine.
[[gnu::always_inline]] inline bool any_body(const float* blocks, int64_t count, const Box& b, float limit) {
  const Lanes zero = {}, y1 = zero + b.y1, x1 = zero + b.x1, y2 = zero + b.y2, x2 = zero + b.x2;
  const float area = b.area();
  for (int64_t k = 0; k < count; ++k, blocks += 5 * kWidth) {
    Lanes v[5];
    __builtin_memcpy(v, blocks, sizeof v);
    Lanes h = (v[2] < y2 ? v[2] : y2) - (v[0] > y1 ? v[0] : y1);
    Lanes w = (v[3] < x2 ? v[3] : x2) - (v[1] > x1 ? v[1] : x1);
    Mask hit = (h > 0) & (w > 0);
    if (!any_set(hit)) continue;
    Lanes both = h * w;
    asm volatile("" : "+m"(both)); // rounded before it is subtracted
    Lanes either = v[4] + area - both;
    hit &= (either > 0) & (both / either > limit);
    if (any_set(hit)) return true;
  }
  return false;
}

bool any_plain(const float* blocks, int64_t count, const Box& b, float limit) {
  return any_body(blocks, count, b, limit);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) bool any_avx2(const float* blocks, int64_t count, const Box& b, float limit) {
  return any_body(blocks, count, b, limit);
}
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"))) bool
any_avx512(const float* blocks, int64_t count, const Box& b, float limit) {
  return any_body(blocks, count, b, limit);
}
#endif

auto best_any() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return any_avx512;
  if (host_isa() >= Isa::avx2) return any_avx2;
#endif
  return any_plain;
}

} // namespace

void KeptBoxes::add(const Box& box) {
  const int64_t lane = count_ % kLanes;
  if (lane == 0) {
    // Empty boxes: their heights are negative against any other.
    blocks_.resize(blocks_.size() + 5 * kLanes, 0.0f);
    float* fresh = blocks_.data() + count_ * 5;
    for (int64_t i = 0; i < kLanes; ++i) {
      fresh[i] = __builtin_inff();
      fresh[2 * kLanes + i] = -__builtin_inff();
    }
  }
  float* block = blocks_.data() + (count_ - lane) * 5 + lane;
  block[0] = box.y1;
  block[kLanes] = box.x1;
  block[2 * kLanes] = box.y2;
  block[3 * kLanes] = box.x2;
  block[4 * kLanes] = box.area();
  ++count_;
}

bool KeptBoxes::overlaps(const Box& box, float limit) const {
  static const auto any = best_any();
  return any(blocks_.data(), static_cast<int64_t>(blocks_.size()) / (5 * kLanes), box, limit);
}

} // namespace tbx::extern_kernels
