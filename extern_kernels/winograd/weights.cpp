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

} // namespace

Weights::Weights(const OperandInfo& weights, int tile)
    : info_(weights), products_(products_of(tile)), panels_((out_channels() + kPanel - 1) / kPanel),
      panel_size_(in_channels() * kPanel), transformed_(allocate_weights(bytes())) {
  each_line([&](const Elements& elements, int64_t panel, int64_t channel) {
    // Whole lines go to memory: those of all products may meet in one set of a cache.
    float products[products_of(4) * kPanel];
    for (int64_t k = 0; k < kPanel / kSome; ++k)
      tile == 2 ? transform<2>(elements[k], products + k * kSome)
                : transform<4>(elements[k], products + k * kSome);
    float* to = static_cast<float*>(transformed_.get()) + panel * panel_size_ + channel * kPanel;
    for (int i = 0; i < products_; ++i, to += panels_ * panel_size_)
      std::copy_n(products + i * kPanel, kPanel, to);
  });
}

const float* Weights::plain() const {
  std::call_once(plain_once_, [&] {
    auto plain = allocate_weights(9 * panels_ * panel_size_ * static_cast<int64_t>(sizeof(float)));
    // Whoever waits here for other threads takes none of the tasks that ask for these weights: it would wait
    // for itself.
    tbb::this_task_arena::isolate([&] {
      each_line([&](const Elements& elements, int64_t panel, int64_t channel) {
        float* to = static_cast<float*>(plain.get()) + panel * 9 * panel_size_ + channel * kPanel;
        for (int e = 0; e < 9; ++e, to += panel_size_)
          for (int64_t k = 0; k < kPanel; ++k) to[k] = static_cast<float>(elements[k / kSome][e][k % kSome]);
      });
    });
    plain_ = std::move(plain);
  });
  return static_cast<const float*>(plain_.get());
}

/// Calls `put` with the nine elements of each channel of each panel.
template <class Put> void Weights::each_line(Put put) const {
  const std::shared_ptr<const Tensor> tensor = widened(info_.constant);
  const auto* from = reinterpret_cast<const float*>(tensor->data);
  const std::vector<int64_t>& step = info_.strides;
  const int64_t channels = in_channels(), results = out_channels();
  direct::in_pieces(panels_ * channels, static_cast<double>(bytes()), [&](int64_t begin, int64_t end) {
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
  drop_pages(*info_.constant);
}

} // namespace tbx::extern_kernels::winograd
