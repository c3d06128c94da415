#include "extern_kernels/winograd/weights.h"

#include <tbb/task_arena.h>

#include "base/memory.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/widen.h"
#include "extern_kernels/winograd/loops.h"
#include "extern_kernels/winograd/transform.h"

namespace tbx::extern_kernels::winograd {
namespace {

using Line = double[kPanel]; ///< of one channel, for the results of a panel

/// In double: rounded once.
template <int M> void transform_line(const Line* elements, float* to, int64_t step) {
  constexpr int kSpan = span_of(M);
  Line rows[kSpan * 3];
  for (int j = 0; j < 3; ++j)
    for (int k = 0; k < kPanel; ++k)
      transform_kernel<M>(&elements[j][k], 3 * kPanel, &rows[j][k], 3 * kPanel);
  for (int i = 0; i < kSpan; ++i) {
    Line products[kSpan];
    for (int k = 0; k < kPanel; ++k) transform_kernel<M>(&rows[i * 3][k], kPanel, &products[0][k], kPanel);
    for (int j = 0; j < kSpan; ++j, to += step)
      for (int k = 0; k < kPanel; ++k) to[k] = static_cast<float>(products[j][k]);
  }
}

} // namespace

Weights::Weights(const OperandInfo& weights, int tile)
    : info_(weights), products_(products_of(tile)), panels_((out_channels() + kPanel - 1) / kPanel),
      panel_size_(in_channels() * kPanel), transformed_(allocate_aligned(bytes())) {
  each_line([&](const Line* elements, int64_t panel, int64_t channel) {
    float* to = static_cast<float*>(transformed_.get()) + panel * panel_size_ + channel * kPanel;
    tile == 2 ? transform_line<2>(elements, to, panels_ * panel_size_)
              : transform_line<4>(elements, to, panels_ * panel_size_);
  });
}

const float* Weights::plain() const {
  std::call_once(plain_once_, [&] {
    auto plain = allocate_aligned(9 * panels_ * panel_size_ * static_cast<int64_t>(sizeof(float)));
    // Whoever waits here for other threads takes none of the tasks that ask for these weights: it would wait
    // for itself.
    tbb::this_task_arena::isolate([&] {
      each_line([&](const Line* elements, int64_t panel, int64_t channel) {
        float* to = static_cast<float*>(plain.get()) + panel * 9 * panel_size_ + channel * kPanel;
        for (int e = 0; e < 9; ++e, to += panel_size_)
          for (int k = 0; k < kPanel; ++k) to[k] = static_cast<float>(elements[e][k]);
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
    Line elements[9] = {};
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / channels, channel = i % channels;
      for (int64_t k = 0; k < kPanel; ++k) {
        const int64_t result = panel * kPanel + k;
        const float* w = from + result * step[0] + channel * step[1];
        for (int64_t e = 0; e < 9; ++e)
          elements[e][k] = result < results ? w[e / 3 * step[2] + e % 3 * step[3]] : 0.0;
      }
      put(elements, panel, channel);
    }
  });
  drop_pages(*info_.constant);
}

} // namespace tbx::extern_kernels::winograd
