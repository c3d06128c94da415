// TopK: the k largest or smallest elements along an axis, sorted.
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

/// A number that orders as the element does: -0 is 0, NaN is above all.
template <class K, class T> K ordered(T v) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr K sign = K{1} << (sizeof(K) * 8 - 1);
    if (v != v) return ~K{0};
    K bits = std::bit_cast<K>(v + T{0});
    return bits & sign ? ~bits : bits | sign;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<K>(v) ^ (K{1} << (sizeof(K) * 8 - 1));
  } else {
    return v;
  }
}

/// Key and position as one number: the largest comes first, of equal keys the one of the lower index.
template <class K> struct Entry {
  using Type = std::conditional_t<sizeof(K) == 4, uint64_t, unsigned __int128>;
  static Type make(K key, int64_t index) {
    return static_cast<Type>(key) << (sizeof(K) * 8) | static_cast<K>(~static_cast<K>(index));
  }
  static int64_t index(Type e) { return static_cast<int64_t>(static_cast<K>(~static_cast<K>(e))); }
};

constexpr int64_t kBlock = 256;

/// The k largest entries of `n` keys, in order. `keys(i, count, out)` gives keys i, ..., i + count - 1.
template <class K, class Keys>
void choose(int64_t n, int64_t k, std::vector<typename Entry<K>::Type>& entries, const Keys& keys) {
  using E = Entry<K>;
  std::greater<> before;
  entries.clear();
  K block[kBlock];
  if (k * 8 > n) { // many: all are looked at
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = std::min(kBlock, n - i);
      keys(i, count, block);
      for (int64_t j = 0; j < count; ++j) entries.push_back(E::make(block[j], i + j));
    }
    if (k < n) std::nth_element(entries.begin(), entries.begin() + k, entries.end(), before);
    entries.resize(static_cast<size_t>(k));
  } else {
    // A buffer of 2k: what is below the k-th best of its first halves is never looked at again.
    K floor = 0;
    const auto room = static_cast<size_t>(std::max<int64_t>(2 * k, kBlock));
    auto shrink = [&] {
      std::nth_element(entries.begin(), entries.begin() + (k - 1), entries.end(), before);
      entries.resize(static_cast<size_t>(k));
      floor = static_cast<K>(entries.back() >> (sizeof(K) * 8));
    };
    bool full = false;
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = std::min(kBlock, n - i);
      keys(i, count, block);
      K best = 0;
      for (int64_t j = 0; j < count; ++j) best = std::max(best, block[j]);
      if (full && best <= floor) continue; // equal keys of higher indices come behind
      for (int64_t j = 0; j < count; ++j)
        if (!full || block[j] > floor) entries.push_back(E::make(block[j], i + j));
      if (entries.size() >= room) {
        shrink();
        full = true;
      }
    }
    if (static_cast<int64_t>(entries.size()) > k) shrink();
  }
  std::sort(entries.begin(), entries.end(), before);
}

/// Elements of storage type S that are numbers of type T, by `value`.
template <class K, class S, class Value>
void top_k(const HostCall& call, const AxisView& view, int64_t k, bool largest, const Value& value) {
  const auto* in = static_cast<const S*>(call.in(0).data);
  auto* out = static_cast<S*>(call.out(0).data);
  auto* positions = static_cast<int64_t*>(call.out(1).data);
  const int64_t rows = view.outer * view.inner,
                grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, view.length));
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, rows, static_cast<size_t>(grain)),
                    [&](const tbb::blocked_range<int64_t>& r) {
                      std::vector<typename Entry<K>::Type> entries;
                      for (int64_t row = r.begin(); row < r.end(); ++row) {
                        const int64_t o = row / view.inner, i = row % view.inner;
                        const S* x = in + o * view.length * view.inner + i;
                        choose<K>(view.length, k, entries, [&](int64_t first, int64_t count, K* keys) {
                          const S* from = x + first * view.inner;
                          if (view.inner == 1)
                            for (int64_t j = 0; j < count; ++j) keys[j] = ordered<K>(value(from[j]));
                          else
                            for (int64_t j = 0; j < count; ++j)
                              keys[j] = ordered<K>(value(from[j * view.inner]));
                          if (!largest)
                            for (int64_t j = 0; j < count; ++j) keys[j] = ~keys[j];
                        });
                        for (int64_t j = 0; j < k; ++j) {
                          const int64_t from = Entry<K>::index(entries[j]), to = (o * k + j) * view.inner + i;
                          out[to] = x[from * view.inner];
                          positions[to] = from;
                        }
                      }
                    });
}

} // namespace

/// Ties go to the lower index; NaN counts as the largest value, as in numpy's sort.
void run_top_k(const HostCall& call) {
  const TensorRef& x = call.in(0);
  const int64_t axis = call.integer("axis"), k = call.out(0).sizes[axis];
  const bool largest = call.integer("largest") != 0;
  AxisView view(x.sizes, axis);
  TBX_MODEL(k <= view.length, "TopK: k is {}, the axis has size {}", k, view.length);
  if (k == 0 || view.outer == 0 || view.inner == 0) return;
  with_storage(x.dtype, [&]<class S>(S) {
    if (is_low_precision_float(x.dtype)) {
      if constexpr (std::is_unsigned_v<S> && sizeof(S) <= 2)
        top_k<uint32_t, S>(call, view, k, largest,
                           [type = x.dtype](S bits) { return decode_float(type, bits); });
    } else if constexpr (sizeof(S) == 8) {
      top_k<uint64_t, S>(call, view, k, largest, [](S v) { return v; });
    } else if (view.length >= int64_t{1} << 32) {
      top_k<uint64_t, S>(call, view, k, largest, [](S v) {
        return static_cast<std::conditional_t<std::is_floating_point_v<S>, double, int64_t>>(v);
      });
    } else {
      top_k<uint32_t, S>(call, view, k, largest, [](S v) {
        if constexpr (std::is_floating_point_v<S>)
          return v;
        else
          return static_cast<std::conditional_t<std::is_signed_v<S>, int32_t, uint32_t>>(v);
      });
    }
  });
}

} // namespace tbx::extern_kernels
