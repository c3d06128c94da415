// NonZero, Compress, Unique: selection and sorting along an axis.
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/task_work.h"
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

void run_non_zero(const HostCall& call) {
  const TensorRef& x = call.in(0);
  const auto rank = static_cast<int64_t>(x.sizes.size());
  const int64_t count = x.numel(), parts = std::clamp<int64_t>(count / kTaskWork.seen_elements, 1, 64);
  std::vector<int64_t> first(static_cast<size_t>(parts) + 1, 0); // where a part writes
  auto begin_of = [&](int64_t part) { return count * part / parts; };
  auto each_part = [&](auto&& f) {
    with_storage(x.dtype, [&]<class S>(S) {
      const auto* v = static_cast<const S*>(x.data);
      if (is_low_precision_float(x.dtype))
        f([v, type = x.dtype](int64_t i) { return decode_float(type, static_cast<uint32_t>(v[i])) != 0; });
      else
        f([v](int64_t i) { return v[i] != 0; });
    });
  };
  each_part([&](auto&& is_set) {
    tbb::parallel_for(int64_t{0}, parts, [&](int64_t part) {
      int64_t n = 0;
      for (int64_t i = begin_of(part), end = begin_of(part + 1); i < end; ++i) n += is_set(i);
      first[part + 1] = n;
    });
  });
  for (int64_t part = 0; part < parts; ++part) first[part + 1] += first[part];
  const int64_t n = first[parts];
  int64_t sizes[] = {std::max<int64_t>(1, rank), n};
  auto* out = static_cast<int64_t*>(call.make(0, sizes));
  if (n == 0) return;
  each_part([&](auto&& is_set) {
    tbb::parallel_for(int64_t{0}, parts, [&](int64_t part) {
      int64_t to = first[part];
      std::vector<int64_t> index(static_cast<size_t>(sizes[0]), 0);
      int64_t rest = begin_of(part);
      for (int64_t d = rank; d-- > 0; rest /= x.sizes[d]) index[d] = rest % x.sizes[d];
      for (int64_t i = begin_of(part), end = begin_of(part + 1); i < end; ++i) {
        if (is_set(i)) {
          for (int64_t d = 0; d < sizes[0]; ++d) out[d * n + to] = index[d];
          ++to;
        }
        for (int64_t d = rank; d-- > 0; index[d] = 0)
          if (++index[d] < x.sizes[d]) break;
      }
    });
  });
}

void run_compress(const HostCall& call) {
  const TensorRef &x = call.in(0), &condition = call.in(1);
  const auto* keep = static_cast<const uint8_t*>(condition.data);
  std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end()), kept;
  bool flat = !call.has_attribute("axis");
  int64_t axis = flat ? 0 : call.integer("axis");
  int64_t flat_size[] = {x.numel()};
  AxisView view(flat ? std::span<const int64_t>(flat_size) : x.sizes, axis);
  const int64_t candidates = std::min(view.length, condition.numel());
  kept.resize(static_cast<size_t>(candidates) + 1);
  int64_t count = 0;
  for (int64_t i = 0; i < candidates; ++i) {
    kept[count] = i; // without a branch that nothing can foresee
    count += keep[i] != 0;
  }
  kept.resize(static_cast<size_t>(count));
  if (flat) sizes = {0};
  sizes[axis] = static_cast<int64_t>(kept.size());
  void* out = call.make(0, sizes);
  int64_t to = 0;
  auto one_by_one = [&]<class S>(S) {
    const auto* from = static_cast<const S*>(x.data);
    auto* y = static_cast<S*>(out);
    for (int64_t o = 0; o < view.outer; ++o, from += view.length)
      for (int64_t i : kept) y[to++] = from[i];
  };
  if (view.inner == 1) {
    switch (size_of(x.dtype)) {
    case 1: return one_by_one(uint8_t{});
    case 2: return one_by_one(uint16_t{});
    case 4: return one_by_one(uint32_t{});
    case 8: return one_by_one(uint64_t{});
    default: break;
    }
  }
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
