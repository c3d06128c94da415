#include "extern_kernels/host/svm_kernels.h"

#include <cmath>

#include "base/isa.h"
#include "extern_kernels/vector_exp.h"
#include "extern_kernels/vectors.h"

namespace tbx::extern_kernels {
namespace {

constexpr int64_t kLanes = 16; ///< of a block
constexpr int64_t kRun = 64;   ///< features that are added up before their sum joins the others

/// |x - v|² (`squares`) or x·v of 16 support vectors v at a time; with `gamma`, which is not negative,
/// e^(-gamma |x - v|²). One body for all instruction sets, of vectors of `B` bytes, inlined into a function
/// per target.
template <int B>
[[gnu::always_inline]] inline void values_body(const float* blocks, int64_t count, const float* x,
                                               int64_t features, bool squares, const float* gamma,
                                               float* out) {
  using Lanes = typename VectorOf<B>::Lanes;
  constexpr int kVectors = kLanes * 4 / B;
  for (int64_t b = 0; b < count; ++b) {
    Lanes total[kVectors] = {};
    for (int64_t first = 0; first < features; first += kRun) {
      Lanes sum[kVectors] = {};
      int64_t end = first + kRun < features ? first + kRun : features;
      for (int64_t i = first; i < end; ++i, blocks += kLanes) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < kVectors; ++j) {
          Lanes v;
          __builtin_memcpy(&v, blocks + j * (B / 4), sizeof v);
          if (squares) {
            v = x[i] - v;
            sum[j] += v * v;
          } else {
            sum[j] += x[i] * v;
          }
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) total[j] += sum[j];
    }
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j, out += B / 4) {
      if (gamma) {
        Lanes power = total[j] * -*gamma;
        power = power < -87.0f ? Lanes{} - 87.0f : power;
        exp_of_negative<typename VectorOf<B>::Ints>(power, total[j]);
      }
      __builtin_memcpy(out, &total[j], sizeof total[j]);
    }
  }
}

void values_plain(const float* blocks, int64_t count, const float* x, int64_t features, bool squares,
                  const float* gamma, float* out) {
  values_body<16>(blocks, count, x, features, squares, gamma, out);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void values_avx2(const float* blocks, int64_t count, const float* x,
                                                     int64_t features, bool squares, const float* gamma,
                                                     float* out) {
  values_body<32>(blocks, count, x, features, squares, gamma, out);
}
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
values_avx512(const float* blocks, int64_t count, const float* x, int64_t features, bool squares,
              const float* gamma, float* out) {
  values_body<64>(blocks, count, x, features, squares, gamma, out);
}
#endif

auto best_values() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return values_avx512;
  if (host_isa() >= Isa::avx2) return values_avx2;
#endif
  return values_plain;
}

} // namespace

SvmKernels::SvmKernels(KernelType type, double gamma, double coef0, double degree,
                       std::span<const float> support, int64_t vectors, int64_t features)
    : type_(type), gamma_(gamma), coef0_(coef0), degree_(degree), vectors_(vectors), features_(features) {
  int64_t blocks = (vectors_ + kLanes - 1) / kLanes;
  blocks_.assign(static_cast<size_t>(blocks * features * kLanes), 0);
  for (int64_t v = 0; v < vectors_; ++v)
    for (int64_t i = 0; i < features; ++i)
      blocks_[(v / kLanes * features + i) * kLanes + v % kLanes] = support[v * features + i];
}

void SvmKernels::operator()(const float* x, std::vector<float>& out) const {
  static const auto values = best_values();
  int64_t blocks = (vectors_ + kLanes - 1) / kLanes;
  out.resize(static_cast<size_t>(blocks * kLanes));
  auto gamma = static_cast<float>(gamma_);
  bool squares = type_ == KernelType::rbf, falls = squares && gamma >= 0;
  values(blocks_.data(), blocks, x, features_, squares, falls ? &gamma : nullptr, out.data());
  if (falls || type_ == KernelType::linear) return;
  for (int64_t v = 0; v < vectors_; ++v) {
    double sum = gamma_ * out[v] + coef0_;
    out[v] = static_cast<float>(squares                     ? std::exp(-gamma_ * out[v])
                                : type_ == KernelType::poly ? std::pow(sum, degree_)
                                                            : std::tanh(sum));
  }
}

} // namespace tbx::extern_kernels
