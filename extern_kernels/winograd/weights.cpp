#include "extern_kernels/winograd/weights.h"

#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/weight_memory.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/widen.h"
#include "extern_kernels/winograd/loops.h"
#include "extern_kernels/winograd/transform.h"

namespace tbx::extern_kernels::winograd {
namespace {

constexpr int64_t kSome = 4; ///< results that are transformed together
using Doubles [[gnu::vector_size(kSome * sizeof(double))]] = double;
using Floats [[gnu::vector_size(kSome * sizeof(float))]] = float;
using Bits [[gnu::vector_size(kSome * sizeof(int32_t))]] = int32_t;

/// One channel of the kernels of a panel, whose elements lie `kPanel` apart.
using Line = float[9][kPanel];

/// What recovered weights are off by at most, of the largest of their kernel: products that are rounded once
/// to float give 10 units in the last place (2^-24). What is below is 0.
constexpr int kNothing = -20;

/// By reference: vectors this wide are returned in other ways with AVX than without.
void load(const float* from, Doubles& to) {
  Floats v;
  std::memcpy(&v, from, sizeof(v));
  to = __builtin_convertvector(v, Doubles);
}

void store(const Doubles& v, float* to) {
  const Floats rounded = __builtin_convertvector(v, Floats);
  std::memcpy(to, &rounded, sizeof(rounded));
}

/// In double: rounded once. Products lie `kPanel` apart.
template <int M> void transform(const float* elements, float* to) {
  constexpr int kSpan = span_of(M);
  Doubles kernel[9], rows[kSpan * 3];
  for (int e = 0; e < 9; ++e) load(elements + e * kPanel, kernel[e]);
  for (int j = 0; j < 3; ++j) transform_kernel<M>(kernel + j, 3, rows + j, 3);
  for (int i = 0; i < kSpan; ++i) {
    Doubles products[kSpan];
    transform_kernel<M>(rows + i * 3, 1, products, 1);
    for (int j = 0; j < kSpan; ++j, to += kPanel) store(products[j], to);
  }
}

constexpr bool is_corner(int element) { return element % 2 == 0 && element != 4; }

/// Whether an element may be none that comes back from the transformed ones: far smaller than its kernel, or
/// near an end of float32. By exponents alone: it takes a part of the time of recover().
bool may_be_hidden(const float* elements) {
  constexpr int kExponent = 23;
  constexpr int32_t kLeast = (127 - 100) << kExponent, kMost = (127 + 120) << kExponent; // 2^-100, 2^120
  Bits sizes[9], most{};
  for (int e = 0; e < 9; ++e) {
    std::memcpy(&sizes[e], elements + e * kPanel, sizeof(Bits));
    sizes[e] &= 0x7fffffff;
    most = sizes[e] > most ? sizes[e] : most;
  }
  Bits found = (most > kMost) | ((most < kLeast) & (most != 0));
  const Bits least = most + ((kNothing + 1) << kExponent);
  for (int e = 0; e < 9; ++e)
    if (!is_corner(e)) found |= (sizes[e] < least) & (sizes[e] != 0);
  return (found[0] | found[1] | found[2] | found[3]) != 0;
}

/// Elements of kernels whose products lie `step` apart, and what is nothing beside them.
template <int M> void recover(const float* from, int64_t step, Doubles* elements, Doubles& most) {
  constexpr int kSpan = span_of(M);
  Doubles rows[kSpan * 3];
  for (int i = 0; i < kSpan; ++i) {
    Doubles products[kSpan];
    for (int j = 0; j < kSpan; ++j, from += step) load(from, products[j]);
    recover_kernel<M>(products, 1, rows + i * 3, 1);
  }
  for (int j = 0; j < 3; ++j) recover_kernel<M>(rows + j, 3, elements + j, 3);
  most = Doubles{};
  for (int e = 0; e < 9; ++e) {
    const Doubles size = elements[e] < 0 ? -elements[e] : elements[e];
    most = size > most ? size : most;
  }
  most *= std::ldexp(1, kNothing);
  for (int e = 0; e < 9; ++e)
    if (!is_corner(e)) elements[e] = elements[e] < most && -elements[e] < most ? Doubles{} : elements[e];
}

/// Calls `put` with the nine elements of each channel of each panel.
template <class Put> void each_line(const OperandInfo& weights, double work, Put put) {
  const std::shared_ptr<const Tensor> tensor = widened(weights.constant);
  const auto* from = reinterpret_cast<const float*>(tensor->data);
  const std::vector<int64_t>& step = weights.strides;
  const int64_t results = weights.sizes[0], channels = weights.sizes[1];
  const int64_t panels = (results + kPanel - 1) / kPanel;
  direct::in_pieces(panels * channels, work, [&](int64_t begin, int64_t end) {
    int64_t steps[9];
    for (int e = 0; e < 9; ++e) steps[e] = e / 3 * step[2] + e % 3 * step[3];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / channels, channel = i % channels;
      Line line = {};
      const int64_t first = panel * kPanel, count = std::min(kPanel, results - first);
      for (int64_t k = 0; k < count; ++k) {
        const float* w = from + (first + k) * step[0] + channel * step[1];
        for (int e = 0; e < 9; ++e) line[e][k] = w[steps[e]];
      }
      put(line, panel, channel);
    }
  });
  drop_pages(*weights.constant);
}

} // namespace

Weights::Weights(const OperandInfo& weights, int tile)
    : out_channels_(weights.sizes[0]), in_channels_(weights.sizes[1]), products_(products_of(tile)),
      panels_((out_channels_ + kPanel - 1) / kPanel), panel_size_(in_channels_ * kPanel),
      transformed_(allocate_weights(bytes())) {
  tile == 2 ? transform_all<2>(weights) : transform_all<4>(weights);
}

template <int M> void Weights::transform_all(const OperandInfo& weights) {
  std::mutex mutex;
  each_line(weights, static_cast<double>(bytes()), [&](const Line& line, int64_t panel, int64_t channel) {
    // Whole lines go to memory: those of all products may meet in one set of a cache.
    float products[products_of(M) * kPanel];
    for (int64_t k = 0; k < kPanel; k += kSome) {
      transform<M>(line[0] + k, products + k);
      if (!may_be_hidden(line[0] + k)) continue;
      Doubles recovered[9], most;
      recover<M>(products + k, kPanel, recovered, most);
      for (int e = 0; e < 9; ++e) {
        Doubles was;
        load(line[e] + k, was);
        const Doubles is = recovered[e], off = is - was;
        const auto near = (off <= most) & (-off <= most) & (off - off == 0); // what overflows is infinite
        const auto alike = ((was == 0) == (is == 0)) & ((was < 0) == (is < 0));
        const auto same = is_corner(e) ? was == is : near & alike;
        for (int64_t l = 0; l < kSome; ++l) {
          if (same[l]) continue;
          const std::lock_guard lock(mutex);
          kept_.push_back({place(panel, e, channel) + k + l, line[e][k + l]});
        }
      }
    }
    float* to = static_cast<float*>(transformed_.get()) + panel * panel_size_ + channel * kPanel;
    for (int i = 0; i < products_; ++i, to += panels_ * panel_size_)
      std::copy_n(products + i * kPanel, kPanel, to);
  });
  kept_.shrink_to_fit();
}

const float* Weights::plain() const {
  std::call_once(plain_once_, [&] {
    auto plain = allocate_weights(9 * panels_ * panel_size_ * static_cast<int64_t>(sizeof(float)));
    auto* to = static_cast<float*>(plain.get());
    products_ == products_of(2) ? recover_all<2>(to) : recover_all<4>(to);
    for (const Kept& kept : kept_) to[kept.at] = kept.value;
    plain_ = std::move(plain);
  });
  return static_cast<const float*>(plain_.get());
}

template <int M> void Weights::recover_all(float* plain) const {
  // Whoever waits here for other threads takes none of the tasks that ask for these weights: it would wait
  // for itself.
  tbb::this_task_arena::isolate([&] {
    direct::in_pieces(panels_ * in_channels_, static_cast<double>(bytes()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / in_channels_, channel = i % in_channels_;
        const float* from = transformed() + panel * panel_size_ + channel * kPanel;
        for (int64_t k = 0; k < kPanel; k += kSome) {
          Doubles elements[9], most;
          recover<M>(from + k, panels_ * panel_size_, elements, most);
          for (int e = 0; e < 9; ++e) store(elements[e], plain + place(panel, e, channel) + k);
        }
      }
    });
  });
}

} // namespace tbx::extern_kernels::winograd
