// NonMaxSuppression (ONNX opset 10): greedy selection of boxes by score, per batch and class.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/budget.h"
#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/overlap.h"
#include "extern_kernels/host/tasks.h"

namespace tbx::extern_kernels {
namespace {

Box read_box(const float* b, bool center) {
  if (center) {
    float h = b[3] / 2, w = b[2] / 2;
    return {b[1] - h, b[0] - w, b[1] + h, b[0] + w};
  }
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

/// Numbers boxes so that those of different numbers cannot overlap: neighbours along x share one as long as
/// the intervals meet. Models that shift each class to a place of its own fall apart into their classes.
std::vector<int32_t> clusters_of(const std::vector<Box>& boxes) {
  std::vector<int32_t> order(boxes.size()), cluster(boxes.size(), 0);
  for (const Box& b : boxes)
    if (std::isnan(b.x1) || std::isnan(b.x2)) return cluster;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return boxes[a].x1 < boxes[b].x1; });
  int32_t current = 0;
  float reach = order.empty() ? 0 : boxes[order[0]].x2;
  for (int32_t i : order) {
    if (boxes[i].x1 >= reach) ++current;
    reach = std::max(reach, boxes[i].x2);
    cluster[i] = current;
  }
  return cluster;
}

/// One value of an optional scalar input.
template <class T> T scalar(const HostCall& call, int i, T otherwise) {
  if (!call.has(i)) return otherwise;
  TBX_MODEL(call.in(i).numel() == 1, "NonMaxSuppression: input {} has {} elements, expected 1", i,
            call.in(i).numel());
  return *static_cast<const T*>(call.in(i).data);
}

struct Limits {
  int64_t count;
  float iou, score;
  bool has_score;
};

/// The boxes kept for one class, best first. Each is held against all that were kept before it.
std::vector<int64_t> select(const std::vector<Box>& boxes, const std::vector<int32_t>& cluster,
                            const float* scores, const Limits& limits) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < boxes.size(); ++i)
    if (!limits.has_score || scores[i] > limits.score) order.push_back(static_cast<int32_t>(i));
  // Equal scores in the order of the boxes; NaN last.
  auto better = [&](int32_t p, int32_t q) {
    float a = scores[p], b = scores[q];
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b) ? p < q : std::isnan(b);
    return a != b ? a > b : p < q;
  };
  std::sort(order.begin(), order.end(), better);
  std::vector<KeptBoxes> kept(
      boxes.empty() ? 0 : 1 + static_cast<size_t>(*std::max_element(cluster.begin(), cluster.end())));
  std::vector<int64_t> selected;
  for (int32_t i : order) {
    check_stop_often();
    if (static_cast<int64_t>(selected.size()) >= limits.count) break;
    KeptBoxes& near = kept[cluster[i]];
    if (near.overlaps(boxes[i], limits.iou)) continue;
    near.add(boxes[i]);
    selected.push_back(i);
  }
  return selected;
}

} // namespace

/// boxes [batches, n, 4], scores [batches, classes, n] -> selected [k, 3] of (batch, class, box).
void run_non_max_suppression(const HostCall& call) {
  const TensorRef &boxes = call.in(0), &scores = call.in(1);
  TBX_MODEL(boxes.sizes.size() == 3 && scores.sizes.size() == 3 && boxes.sizes[2] == 4 &&
                boxes.sizes[0] == scores.sizes[0] && boxes.sizes[1] == scores.sizes[2],
            "NonMaxSuppression: boxes [{}] do not match scores [{}]", fmt::join(boxes.sizes, ", "),
            fmt::join(scores.sizes, ", "));
  const int64_t batches = boxes.sizes[0], n = boxes.sizes[1], classes = scores.sizes[1];
  TBX_MODEL(n < (int64_t{1} << 31), "NonMaxSuppression: {} boxes", n);
  Limits limits{scalar<int64_t>(call, 2, 0), scalar<float>(call, 3, 0), scalar<float>(call, 4, 0),
                call.has(4)};
  const bool center = call.integer("center_point_box") != 0;
  const auto *box_data = static_cast<const float*>(boxes.data),
             *score_data = static_cast<const float*>(scores.data);
  std::vector<int64_t> selected;
  const bool any = limits.count > 0 && boxes.numel() > 0 && scores.numel() > 0;
  std::vector<Box> all(static_cast<size_t>(any ? n : 0));
  for (int64_t b = 0; b < batches && any; ++b) {
    for (int64_t i = 0; i < n; ++i) all[i] = read_box(box_data + (b * n + i) * 4, center);
    const std::vector<int32_t> cluster = clusters_of(all);
    std::vector<std::vector<int64_t>> kept(static_cast<size_t>(classes));
    for_each_task(classes, [&](int64_t c) {
      kept[c] = select(all, cluster, score_data + (b * classes + c) * n, limits);
    });
    for (int64_t c = 0; c < classes; ++c)
      for (int64_t i : kept[c]) selected.insert(selected.end(), {b, c, i});
  }
  int64_t sizes[] = {static_cast<int64_t>(selected.size()) / 3, 3};
  std::copy(selected.begin(), selected.end(), static_cast<int64_t*>(call.make(0, sizes)));
}

} // namespace tbx::extern_kernels
