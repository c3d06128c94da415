// NonMaxSuppression (ONNX opset 10): greedy selection of boxes by score, per batch and class.
#include <algorithm>
#include <cmath>

#include "extern_kernels/host/host_kernel.h"

namespace tbx::extern_kernels {
namespace {

struct Box {
  float y1, x1, y2, x2;
  float area() const { return (y2 - y1) * (x2 - x1); }
};

Box read_box(const float* b, bool center) {
  if (center) {
    float h = b[3] / 2, w = b[2] / 2;
    return {b[1] - h, b[0] - w, b[1] + h, b[0] + w};
  }
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

bool overlaps(const Box& a, const Box& b, float limit) {
  float h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1), w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (h <= 0 || w <= 0) return false;
  float both = h * w, either = a.area() + b.area() - both;
  return either > 0 && both / either > limit;
}

} // namespace

/// boxes [batches, n, 4], scores [batches, classes, n] -> selected [k, 3] of (batch, class, box).
void run_non_max_suppression(const HostCall& call) {
  const TensorRef &boxes = call.in(0), &scores = call.in(1);
  int64_t batches = boxes.sizes[0], n = boxes.sizes[1], classes = scores.sizes[1];
  int64_t limit = call.has(2) ? *static_cast<const int64_t*>(call.in(2).data) : 0;
  float iou = call.has(3) ? *static_cast<const float*>(call.in(3).data) : 0;
  bool has_threshold = call.has(4);
  float threshold = has_threshold ? *static_cast<const float*>(call.in(4).data) : 0;
  bool center = call.integer("center_point_box") != 0;
  const auto *box_data = static_cast<const float*>(boxes.data),
             *score_data = static_cast<const float*>(scores.data);
  std::vector<int64_t> selected;
  std::vector<Box> all(static_cast<size_t>(n));
  for (int64_t b = 0; b < batches && limit > 0; ++b) {
    for (int64_t i = 0; i < n; ++i) all[i] = read_box(box_data + (b * n + i) * 4, center);
    for (int64_t c = 0; c < classes; ++c) {
      const float* s = score_data + (b * classes + c) * n;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < n; ++i)
        if (!has_threshold || s[i] > threshold) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) { return s[p] > s[q]; });
      std::vector<int64_t> kept;
      for (int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= limit) break;
        bool suppressed =
            std::any_of(kept.begin(), kept.end(), [&](int64_t k) { return overlaps(all[i], all[k], iou); });
        if (!suppressed) kept.push_back(i);
      }
      for (int64_t i : kept) selected.insert(selected.end(), {b, c, i});
    }
  }
  int64_t sizes[] = {static_cast<int64_t>(selected.size()) / 3, 3};
  std::copy(selected.begin(), selected.end(), static_cast<int64_t*>(call.make(0, sizes)));
}

} // namespace tbx::extern_kernels
