#include "extern_kernels/winograd/weights.h"

#include <tbb/task_arena.h>

#include <algorithm>
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

/// One channel of the kernels of a panel: elements of some results, then those of the next ones.
using Elements = Doubles[kPanel / kSome][9];

/// What recovered weights are off by at most, of the largest of their kernel: products that are rounded once
/// to float give 10 units in the last place (2^-24). What is below is 0.
constexpr double kNothing = 0x1p-20;

/// In double: rounded once. Products lie `kPanel` apart.
template <int M> void transform(const Doubles* elements, float* to) {
  constexpr int kSpan = span_of(M);
  Doubles rows[kSpan * 3];
  for (int j = 0; j < 3; ++j) transform_kernel<M>(elements + j, 3, rows + j, 3);
  for (int i = 0; i < kSpan; ++i) {
    Doubles products[kSpan];
    transform_kernel<M>(rows + i * 3, 1, products, 1);
    for (int j = 0; j < kSpan; ++j, to += kPanel) {
      const Floats rounded = __builtin_convertvector(products[j], Floats);
      std::memcpy(to, &rounded, sizeof(rounded));
    }
  }
}

constexpr bool is_corner(int element) { return element % 2 == 0 && element != 4; }

/// Elements of kernels whose products lie `step` apart, and what is nothing beside them.
template <int M> Doubles recover(const float* from, int64_t step, Doubles* elements) {
  constexpr int kSpan = span_of(M);
  Doubles rows[kSpan * 3];
  for (int i = 0; i < kSpan; ++i) {
    Doubles products[kSpan];
    for (int j = 0; j < kSpan; ++j, from += step) {
      Floats rounded;
      std::memcpy(&rounded, from, sizeof(rounded));
      products[j] = __builtin_convertvector(rounded, Doubles);
    }
    recover_kernel<M>(products, 1, rows + i * 3, 1);
  }
  for (int j = 0; j < 3; ++j) recover_kernel<M>(rows + j, 3, elements + j, 3);
  Doubles most{};
  for (int e = 0; e < 9; ++e) {
    const Doubles size = elements[e] < 0 ? -elements[e] : elements[e];
    most = size > most ? size : most;
  }
  most *= kNothing;
  for (int e = 0; e < 9; ++e)
    if (!is_corner(e)) elements[e] = elements[e] < most && -elements[e] < most ? Doubles{} : elements[e];
  return most;
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
      Elements elements = {};
      const int64_t first = panel * kPanel, count = std::min(kPanel, results - first);
      for (int64_t k = 0; k < count; ++k) {
        const float* w = from + (first + k) * step[0] + channel * step[1];
        for (int e = 0; e < 9; ++e) elements[k / kSome][e][k % kSome] = w[steps[e]];
      }
      put(elements, panel, channel);
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
  each_line(
      weights, static_cast<double>(bytes()), [&](const Elements& elements, int64_t panel, int64_t channel) {
        // Whole lines go to memory: those of all products may meet in one set of a cache.
        float products[products_of(M) * kPanel];
        for (int64_t k = 0; k < kPanel / kSome; ++k) {
          transform<M>(elements[k], products + k * kSome);
          Doubles recovered[9];
          const Doubles most = recover<M>(products + k * kSome, kPanel, recovered);
          for (int e = 0; e < 9; ++e) {
            const Doubles was = elements[k][e], is = recovered[e], off = is - was;
            const auto near = (off <= most) & (-off <= most) & (off - off == 0); // what overflows is infinite
            const auto alike = ((was == 0) == (is == 0)) & ((was < 0) == (is < 0));
            const auto same = is_corner(e) ? was == is : near & alike;
            for (int64_t l = 0; l < kSome; ++l) {
              if (same[l]) continue;
              const std::lock_guard lock(mutex);
              kept_.push_back({place(panel, e, channel) + k * kSome + l, static_cast<float>(was[l])});
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
          Doubles elements[9];
          recover<M>(from + k, panels_ * panel_size_, elements);
          for (int e = 0; e < 9; ++e) {
            const Floats element = __builtin_convertvector(elements[e], Floats);
            std::memcpy(plain + place(panel, e, channel) + k, &element, sizeof(element));
          }
        }
      }
    });
  });
}

} // namespace tbx::extern_kernels::winograd
