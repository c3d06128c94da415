// Operands that end, or begin, at a page that nobody may touch, and post-operations in double.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <random>

#include "extern_kernels_helper.h"

namespace tbx::extern_kernels {

/// Of each thread, and other numbers in each.
inline std::atomic<uint32_t> operand_seed{20261124};
inline thread_local std::mt19937 operand_rng(operand_seed++);
inline int64_t pick_between(int64_t lo, int64_t hi) {
  return std::uniform_int_distribution<int64_t>(lo, hi)(operand_rng);
}

/// Floats between two pages that cannot be read, right before the one or right behind the other.
class Guarded {
public:
  Guarded(size_t count, bool at_end) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), bytes = count * sizeof(float);
    inside_ = (bytes + page - 1) / page * page;
    auto* all = static_cast<std::byte*>(
        mmap(nullptr, inside_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(all), MAP_FAILED);
    memory_ = {all, [n = inside_ + 2 * page](std::byte* p) { munmap(p, n); }};
    if (inside_ > 0) {
      EXPECT_EQ(mprotect(all + page, inside_, PROT_READ | PROT_WRITE), 0);
    }
    data_ = reinterpret_cast<float*>(all + page + (at_end ? inside_ - bytes : 0));
  }
  float* data() const { return data_; }

private:
  size_t inside_;
  std::shared_ptr<std::byte> memory_;
  float* data_;
};

struct Operand {
  Dims sizes, strides;
  size_t count = 0; ///< floats from the first to the last
  Guarded memory{0, true};

  Operand() = default;
  Operand(Dims s, Dims steps, bool at_end = true) : sizes(std::move(s)), strides(std::move(steps)) {
    int64_t last = 0, all = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      last += (sizes[d] - 1) * strides[d];
      all *= sizes[d];
    }
    count = all == 0 ? 0 : static_cast<size_t>(last + 1);
    memory = Guarded(count, at_end);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) memory.data()[i] = normal(operand_rng);
  }
  explicit Operand(Dims s) : Operand(s, dense_strides(s, {})) {}

  TensorRef ref() const { return {memory.data(), DType::f32, sizes, strides}; }
  OperandInfo info() const { return {DType::f32, sizes, strides, nullptr}; }
  /// With its elements as a constant of one dimension.
  OperandInfo constant() const {
    OperandInfo i = info();
    Tensor t = Tensor::make(DType::f32, {static_cast<int64_t>(count)});
    std::copy_n(memory.data(), count, t.as_mutable<float>().begin());
    i.constant = std::make_shared<const Tensor>(std::move(t));
    return i;
  }
  /// The element at an index of the result, or nearer: dimensions of one element are repeated.
  double at(const Dims& index) const {
    int64_t place = 0;
    for (size_t d = 0; d < sizes.size(); ++d) place += sizes[d] == 1 ? 0 : index[d] * strides[d];
    return memory.data()[place];
  }
};

inline double value_of(const PostOp& op, double x, double other) {
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  switch (op.kind) {
  case PostOp::relu: return std::max(x, 0.0);
  case PostOp::leaky_relu: return x < 0 ? op.alpha * x : x;
  case PostOp::clip:
    return std::min(std::max(x, static_cast<double>(op.alpha)), static_cast<double>(op.beta));
  case PostOp::gelu_erf: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
  case PostOp::gelu_tanh: return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case PostOp::silu: return x * sigmoid(op.alpha * x);
  case PostOp::sigmoid: return sigmoid(x);
  case PostOp::tanh: return std::tanh(x);
  case PostOp::hard_sigmoid: return std::min(std::max(op.alpha * x + op.beta, 0.0), 1.0);
  case PostOp::hard_swish: return x * std::min(std::max(x / 6 + 0.5, 0.0), 1.0);
  case PostOp::linear: return op.alpha * x + op.beta;
  case PostOp::round: return std::nearbyint(x);
  case PostOp::add:
  case PostOp::sum: return x + other;
  case PostOp::sub: return x - other;
  case PostOp::mul: return x * other;
  case PostOp::div: return x / other;
  }
  return x;
}

/// The index of element `i` of these sizes.
inline Dims index_of(int64_t i, const Dims& sizes) {
  Dims index(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) index[d] = i % sizes[d];
  return index;
}

inline int64_t element_count(const Dims& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// What is computed of an element, and how far a kernel in float32 may be from it.
struct Expected {
  double value = 0, error = 0;

  /// A sum of `terms` with these magnitudes.
  Expected(double sum, double magnitude, int64_t terms)
      : value(sum), error((magnitude + 1) * static_cast<double>(terms + 8) * 0x1p-24) {}
  void apply(const PostOp& op, double other) {
    value = value_of(op, value, other);
    const double factor = op.kind == PostOp::mul   ? std::fabs(other)
                          : op.kind == PostOp::div ? 1 / std::fabs(other)
                                                   : 1;
    error = error * std::max({1.2, factor, std::fabs(static_cast<double>(op.alpha))}) +
            (std::fabs(value) + 1) * 0x1p-21;
  }
};

} // namespace tbx::extern_kernels
