// TopK, NonZero, Compress, Unique: selection and sorting along an axis.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

/// Elements as numbers that order like the originals, 64-bit integers exactly.
template <class F> void with_values(const TensorRef& t, F&& f) {
  if (is_float(t.dtype)) {
    f(to_dense<double>(t));
  } else if (t.dtype == DType::u64) {
    f(to_dense<uint64_t>(t));
  } else {
    f(to_dense<int64_t>(t));
  }
}

template <class T> bool is_nan(T v) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(v);
  return false;
}

/// Copies element `from` of `src` to element `to` of `dst` (same type, dense).
void copy_element(const TensorRef& src, int64_t from, void* dst, int64_t to, int64_t count = 1) {
  int64_t w = size_of(src.dtype);
  std::memcpy(static_cast<std::byte*>(dst) + to * w, static_cast<const std::byte*>(src.data) + from * w,
              static_cast<size_t>(w * count));
}

} // namespace

/// Ties go to the lower index; NaN counts as the largest value, as in numpy's sort.
void run_top_k(const HostCall& call) {
  const TensorRef &x = call.in(0), &values = call.out(0), &indices = call.out(1);
  int64_t axis = call.integer("axis"), k = values.sizes[axis];
  bool largest = call.integer("largest") != 0;
  AxisView view(x.sizes, axis);
  auto* index_out = static_cast<int64_t*>(indices.data);
  with_values(x, [&](const auto& v) {
    std::vector<int64_t> order(static_cast<size_t>(view.length));
    for (int64_t o = 0; o < view.outer; ++o)
      for (int64_t i = 0; i < view.inner; ++i) {
        auto at = [&](int64_t j) { return v[(o * view.length + j) * view.inner + i]; };
        std::iota(order.begin(), order.end(), 0);
        auto before = [&](int64_t a, int64_t b) {
          auto x = at(a), y = at(b);
          bool nx = is_nan(x), ny = is_nan(y);
          if (nx || ny) return nx == ny ? a < b : largest ? nx : ny;
          if (x != y) return largest ? x > y : x < y;
          return a < b;
        };
        std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
        for (int64_t j = 0; j < k; ++j) {
          int64_t to = (o * k + j) * view.inner + i;
          copy_element(x, (o * view.length + order[j]) * view.inner + i, values.data, to);
          index_out[to] = order[j];
        }
      }
  });
}

void run_non_zero(const HostCall& call) {
  const TensorRef& x = call.in(0);
  int64_t rank = std::max<int64_t>(1, static_cast<int64_t>(x.sizes.size()));
  std::vector<int64_t> found;
  with_values(x, [&](const auto& v) {
    for (size_t i = 0; i < v.size(); ++i)
      if (v[i] != 0) found.push_back(static_cast<int64_t>(i));
  });
  auto n = static_cast<int64_t>(found.size());
  int64_t sizes[] = {rank, n};
  auto* out = static_cast<int64_t*>(call.make(0, sizes));
  for (int64_t j = 0; j < n; ++j) {
    int64_t rest = found[j];
    for (int64_t d = rank; d-- > 0;) {
      int64_t size = x.sizes.empty() ? 1 : x.sizes[d];
      out[d * n + j] = rest % size;
      rest /= size;
    }
  }
}

void run_compress(const HostCall& call) {
  const TensorRef &x = call.in(0), &condition = call.in(1);
  const auto* keep = static_cast<const uint8_t*>(condition.data);
  std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end()), kept;
  bool flat = !call.has_attribute("axis");
  int64_t axis = flat ? 0 : call.integer("axis");
  int64_t flat_size[] = {x.numel()};
  AxisView view(flat ? std::span<const int64_t>(flat_size) : x.sizes, axis);
  for (int64_t i = 0; i < std::min(view.length, condition.numel()); ++i)
    if (keep[i]) kept.push_back(i);
  if (flat) sizes = {0};
  sizes[axis] = static_cast<int64_t>(kept.size());
  void* out = call.make(0, sizes);
  int64_t to = 0;
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t i : kept) {
      copy_element(x, (o * view.length + i) * view.inner, out, to, view.inner);
      to += view.inner;
    }
}

void run_unique(const HostCall& call) {
  const TensorRef& x = call.in(0);
  bool flat = !call.has_attribute("axis"), sorted = call.integer("sorted") != 0;
  int64_t axis = flat ? 0 : call.integer("axis");
  int64_t flat_size[] = {x.numel()};
  AxisView view(flat ? std::span<const int64_t>(flat_size) : x.sizes, axis);
  with_values(x, [&](const auto& v) {
    auto at = [&](int64_t o, int64_t j, int64_t i) { return v[(o * view.length + j) * view.inner + i]; };
    // Three-way comparison of two slices along the axis.
    auto compare = [&](int64_t a, int64_t b) {
      for (int64_t o = 0; o < view.outer; ++o)
        for (int64_t i = 0; i < view.inner; ++i) {
          auto p = at(o, a, i), q = at(o, b, i);
          bool np = is_nan(p), nq = is_nan(q);
          if (np || nq) {
            if (np != nq) return np ? 1 : -1;
            continue;
          }
          if (p != q) return p < q ? -1 : 1;
        }
      return 0;
    };
    std::vector<int64_t> order(static_cast<size_t>(view.length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
    std::vector<int64_t> first, counts, inverse(order.size());
    std::vector<int64_t> group_of(order.size());
    for (size_t j = 0; j < order.size(); ++j) {
      if (j == 0 || compare(order[j - 1], order[j]) != 0) {
        first.push_back(order[j]);
        counts.push_back(0);
      }
      ++counts.back();
      group_of[order[j]] = static_cast<int64_t>(first.size()) - 1;
    }
    std::vector<int64_t> place(first.size());
    std::iota(place.begin(), place.end(), 0);
    if (!sorted)
      std::sort(place.begin(), place.end(), [&](int64_t a, int64_t b) { return first[a] < first[b]; });
    std::vector<int64_t> rank(first.size());
    for (size_t j = 0; j < place.size(); ++j) rank[place[j]] = static_cast<int64_t>(j);
    for (size_t j = 0; j < inverse.size(); ++j) inverse[j] = rank[group_of[j]];

    auto n = static_cast<int64_t>(first.size());
    std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end());
    if (flat) sizes = {0};
    sizes[axis] = n;
    void* y = call.make(0, sizes);
    int64_t to = 0;
    for (int64_t o = 0; o < view.outer; ++o)
      for (int64_t j = 0; j < n; ++j, to += view.inner)
        copy_element(x, (o * view.length + first[place[j]]) * view.inner, y, to, view.inner);
    int64_t count_size[] = {n}, inverse_size[] = {view.length};
    auto* index = static_cast<int64_t*>(call.make(1, count_size));
    auto* back = static_cast<int64_t*>(call.make(2, inverse_size));
    auto* count = static_cast<int64_t*>(call.make(3, count_size));
    for (int64_t j = 0; j < n; ++j) {
      index[j] = first[place[j]];
      count[j] = counts[place[j]];
    }
    std::copy(inverse.begin(), inverse.end(), back);
  });
}

} // namespace tbx::extern_kernels
