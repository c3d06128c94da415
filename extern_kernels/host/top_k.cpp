// TopK: the k largest or smallest elements along an axis, sorted.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/budget.h"
#include "base/isa.h"
#include "base/task_work.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/tasks.h"
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

/// As `ordered`, of the bits of a float16 or bfloat16 whose infinity has the bits `infinity`.
uint32_t ordered_half(uint32_t bits, uint32_t infinity) {
  const uint32_t magnitude = bits & 0x7fff, middle = 0x8000;
  return magnitude > infinity ? ~uint32_t{0} : bits & middle ? middle - magnitude : middle + magnitude;
}

constexpr int64_t kGroups = 64; ///< of keys, of each of which the largest is found first

/// The largest key of each group: those at distances of kGroups.
template <class K> [[gnu::always_inline]] inline void largest_body(const K* keys, int64_t n, K* best) {
  constexpr int64_t kWidth = 64 / sizeof(K), kVectors = kGroups / kWidth;
  typedef K V __attribute__((vector_size(64)));
  V most[kVectors] = {};
  int64_t i = 0;
  for (; i + kGroups <= n; i += kGroups)
    for (int64_t v = 0; v < kVectors; ++v) {
      V x;
      __builtin_memcpy(&x, keys + i + v * kWidth, sizeof x);
      most[v] = x > most[v] ? x : most[v];
    }
  __builtin_memcpy(best, most, sizeof most);
  for (int64_t j = 0; i + j < n; ++j) best[j] = std::max(best[j], keys[i + j]);
}

/// The positions of keys that are not below `floor`; their number.
template <class K>
[[gnu::always_inline]] inline int64_t not_below_body(const K* keys, int64_t n, K floor, int64_t* found) {
  constexpr int64_t kWidth = 64 / sizeof(K);
  typedef K V __attribute__((vector_size(64)));
  const V limit = V{} + floor;
  int64_t count = 0, i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    V x, y; // one by one: a copy of both would go through smaller registers and stall
    __builtin_memcpy(&x, keys + i, sizeof x);
    __builtin_memcpy(&y, keys + i + kWidth, sizeof y);
    const V most = x > y ? x : y, hit = most >= limit ? V{} + 1 : V{};
    uint64_t words[8];
    __builtin_memcpy(words, &hit, sizeof words);
    if ((words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7]) == 0)
      continue;
    for (int64_t j = i; j < i + 2 * kWidth; ++j) {
      found[count] = j;
      count += keys[j] >= floor;
    }
  }
  for (; i < n; ++i) {
    found[count] = i;
    count += keys[i] >= floor;
  }
  return count;
}

/// `ordered` of many; `flip` is ~0 where the smallest are wanted.
[[gnu::always_inline]] inline void float_keys_body(const float* x, int64_t n, uint32_t flip, uint32_t* keys) {
  typedef float F __attribute__((vector_size(64)));
  typedef uint32_t U __attribute__((vector_size(64)));
  typedef int32_t I __attribute__((vector_size(64)));
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    F v;
    __builtin_memcpy(&v, x + i, sizeof v);
    v = v + 0.0f; // -0 is 0
    I bits;       // std::bit_cast would pass vectors between functions, whose ABI depends on the ISA
    __builtin_memcpy(&bits, &v, sizeof v);
    const U key = (U(bits ^ ((bits >> 31) | INT32_MIN)) | U(v != v)) ^ flip;
    __builtin_memcpy(keys + i, &key, sizeof key);
  }
  for (; i < n; ++i) keys[i] = ordered<uint32_t>(x[i]) ^ flip;
}

/// `ordered` of many integers as wide as their keys, whose bits `flip` turns.
template <class K> [[gnu::always_inline]] inline void bit_keys_body(const K* x, int64_t n, K flip, K* keys) {
  constexpr int64_t kWidth = 64 / sizeof(K);
  typedef K V __attribute__((vector_size(64)));
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    V v;
    __builtin_memcpy(&v, x + i, sizeof v);
    v ^= flip;
    __builtin_memcpy(keys + i, &v, sizeof v);
  }
  for (; i < n; ++i) keys[i] = x[i] ^ flip;
}

// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_TOP_K(name, attributes)                                                                          \
  attributes void largest_##name(const uint32_t* k, int64_t n, uint32_t* b) { largest_body(k, n, b); }       \
  attributes void largest_##name(const uint64_t* k, int64_t n, uint64_t* b) { largest_body(k, n, b); }       \
  attributes int64_t not_below_##name(const uint32_t* k, int64_t n, uint32_t floor, int64_t* found) {        \
    return not_below_body(k, n, floor, found);                                                               \
  }                                                                                                          \
  attributes int64_t not_below_##name(const uint64_t* k, int64_t n, uint64_t floor, int64_t* found) {        \
    return not_below_body(k, n, floor, found);                                                               \
  }                                                                                                          \
  attributes void bit_keys_##name(const uint32_t* x, int64_t n, uint32_t flip, uint32_t* keys) {             \
    bit_keys_body(x, n, flip, keys);                                                                         \
  }                                                                                                          \
  attributes void bit_keys_##name(const uint64_t* x, int64_t n, uint64_t flip, uint64_t* keys) {             \
    bit_keys_body(x, n, flip, keys);                                                                         \
  }                                                                                                          \
  attributes void float_keys_##name(const float* x, int64_t n, uint32_t flip, uint32_t* keys) {              \
    float_keys_body(x, n, flip, keys);                                                                       \
  }
// NOLINTEND(bugprone-macro-parentheses)
TBX_TOP_K(plain, )
#if defined(__x86_64__)
TBX_TOP_K(avx2, __attribute__((target("avx2"))))
TBX_TOP_K(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"))))
#endif
#undef TBX_TOP_K

#if defined(__x86_64__)
/// Asked once: it reads the environment.
Isa own_isa() {
  static const Isa isa = host_isa();
  return isa;
}

#define TBX_BEST(f, ...)                                                                                     \
  (own_isa() == Isa::avx512 ? f##_avx512(__VA_ARGS__)                                                        \
   : own_isa() == Isa::avx2 ? f##_avx2(__VA_ARGS__)                                                          \
                            : f##_plain(__VA_ARGS__))
#else
#define TBX_BEST(f, ...) f##_plain(__VA_ARGS__)
#endif

/// The k largest entries of `n` keys, in order.
template <class K>
void choose(const K* keys, int64_t n, int64_t k, std::vector<typename Entry<K>::Type>& entries,
            std::vector<int64_t>& found) {
  using E = Entry<K>;
  std::greater<> before;
  entries.clear();
  if (k == 1 && n < 2 * kGroups) {
    auto most = E::make(keys[0], 0);
    for (int64_t i = 1; i < n; ++i) most = std::max(most, E::make(keys[i], i));
    entries.push_back(most);
    return;
  }
  constexpr int64_t kFew = 16;
  if (k <= kFew && n < 2 * kGroups) { // the best so far, in order
    typename E::Type best[kFew] = {};
    for (int64_t i = 0; i < n; ++i) {
      const auto e = E::make(keys[i], i);
      if (i >= k && e < best[k - 1]) continue;
      int64_t at = std::min(i, k - 1);
      for (; at > 0 && best[at - 1] < e; --at) best[at] = best[at - 1];
      best[at] = e;
    }
    entries.assign(best, best + k);
    return;
  }
  if (2 * k <= kGroups && n >= 2 * kGroups) {
    // k elements are at least as large as the k-th largest of the groups' best: what is below is out.
    K best[kGroups];
    TBX_BEST(largest, keys, n, best);
    if (k == 1)
      best[0] = *std::max_element(best, best + kGroups);
    else
      std::nth_element(best, best + (k - 1), best + kGroups, before);
    found.resize(static_cast<size_t>(n) + 1);
    const int64_t count = TBX_BEST(not_below, keys, n, best[k - 1], found.data());
    for (int64_t j = 0; j < count; ++j) entries.push_back(E::make(keys[found[j]], found[j]));
  } else if (k * 8 > n) { // many: all are looked at
    for (int64_t i = 0; i < n; ++i) entries.push_back(E::make(keys[i], i));
  } else {
    // A buffer of 2k: what is below the k-th best of its first halves is never looked at again.
    constexpr int64_t kBlock = 256;
    const auto room = static_cast<size_t>(std::max<int64_t>(2 * k, kBlock));
    K floor = 0;
    bool full = false;
    found.resize(kBlock + 1);
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = TBX_BEST(not_below, keys + i, std::min(kBlock, n - i), floor, found.data());
      for (int64_t j = 0; j < count; ++j) {
        const K key = keys[i + found[j]];
        if (!full || key > floor) entries.push_back(E::make(key, i + found[j])); // equal ones come behind
      }
      if (entries.size() < room) continue;
      std::nth_element(entries.begin(), entries.begin() + (k - 1), entries.end(), before);
      entries.resize(static_cast<size_t>(k));
      floor = static_cast<K>(entries.back() >> (sizeof(K) * 8));
      full = true;
    }
  }
  if (k < static_cast<int64_t>(entries.size())) {
    std::nth_element(entries.begin(), entries.begin() + k, entries.end(), before);
    entries.resize(static_cast<size_t>(k));
  }
  std::sort(entries.begin(), entries.end(), before);
}

constexpr int64_t kColumns = 64; ///< that lie side by side, each of which gives its best element

/// The first of the largest keys of each of `count` columns of `n` elements that are `inner` apart.
template <class K, class S, class Key>
void best_of_columns(const S* x, int64_t n, int64_t inner, int64_t count, const Key& key, S* out,
                     int64_t* positions) {
  K best[kColumns], at[kColumns];
  for (int64_t q = 0; q < count; ++q) best[q] = key(x[q]), at[q] = 0;
  for (int64_t j = 1; j < n; ++j)
    for (int64_t q = 0; q < count; ++q) {
      const K here = key(x[j * inner + q]);
      at[q] = here > best[q] ? static_cast<K>(j) : at[q];
      best[q] = std::max(here, best[q]);
    }
  for (int64_t q = 0; q < count; ++q) {
    positions[q] = static_cast<int64_t>(at[q]);
    out[q] = x[positions[q] * inner + q];
  }
}

/// The same of `count` rows of `n` elements that lie side by side.
template <class K, class S, class Key>
void best_of_rows(const S* x, int64_t n, int64_t count, const Key& key, S* out, int64_t* positions) {
  for (int64_t row = 0; row < count; ++row, x += n) {
    K best = key(x[0]);
    int64_t at = 0;
    for (int64_t j = 1; j < n; ++j) {
      const K here = key(x[j]);
      at = here > best ? j : at;
      best = std::max(here, best);
    }
    positions[row] = at;
    out[row] = x[at];
  }
}

/// Elements of storage type S that are numbers of type T, by `value`.
template <class K, class S, class Value>
void top_k(const HostCall& call, const AxisView& view, int64_t k, bool largest, const Value& value) {
  const auto* in = static_cast<const S*>(call.in(0).data);
  auto* out = static_cast<S*>(call.out(0).data);
  auto* positions = static_cast<int64_t*>(call.out(1).data);
  const int64_t rows = view.outer * view.inner,
                grain = std::max<int64_t>(1, kTaskWork.compared_elements / std::max<int64_t>(1, view.length));
  share(rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<typename Entry<K>::Type> entries;
    constexpr int64_t kTogether = 16; // rows that lie side by side are read together
    const int64_t n = view.length, inner = view.inner;
    const K flip = largest ? K{0} : static_cast<K>(~K{0});
    auto key = [&](S v) { return ordered<K>(value(v)) ^ flip; };
    if (k == 1 && inner == 1 && n < 2 * kGroups)
      return best_of_rows<K>(in + begin * n, n, end - begin, key, out + begin, positions + begin);
    const bool by_columns = k == 1 && inner > 1;
    std::vector<K> keys(by_columns ? 0 : static_cast<size_t>(n * std::min(kTogether, inner)));
    std::vector<int64_t> found;
    for (int64_t row = begin, rows; row < end; row += rows) {
      const int64_t o = row / inner, i = row % inner;
      rows = std::min({by_columns ? kColumns : kTogether, inner - i, end - row});
      const S* x = in + o * n * inner + i;
      if (by_columns) {
        best_of_columns<K>(x, n, inner, rows, key, out + o * inner + i, positions + o * inner + i);
        continue;
      }
      bool done = false;
      if constexpr (std::is_same_v<S, float> && std::is_same_v<K, uint32_t>)
        if (inner == 1) {
          TBX_BEST(float_keys, x, n, flip, keys.data());
          done = true;
        }
      if constexpr (std::is_integral_v<S> && sizeof(S) == sizeof(K))
        if (inner == 1) {
          const K turned = flip ^ (std::is_signed_v<S> ? K{1} << (sizeof(K) * 8 - 1) : K{0});
          TBX_BEST(bit_keys, reinterpret_cast<const K*>(x), n, turned, keys.data());
          done = true;
        }
      if (!done && inner == 1) {
        for (int64_t j = 0; j < n; ++j) keys[j] = key(x[j]);
        done = true;
      }
      for (int64_t j = 0; !done && j < n; ++j)
        for (int64_t q = 0; q < rows; ++q) keys[q * n + j] = key(x[j * inner + q]);
      for (int64_t q = 0; q < rows; ++q) {
        check_stop_often();
        choose<K>(keys.data() + q * n, n, k, entries, found);
        for (int64_t j = 0; j < k; ++j) {
          const int64_t from = Entry<K>::index(entries[j]), to = (o * k + j) * inner + i + q;
          out[to] = x[from * inner + q];
          positions[to] = from;
        }
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
    if (is_half(x.dtype)) {
      if constexpr (std::is_same_v<S, uint16_t>) {
        const uint32_t infinity = x.dtype == DType::f16 ? 0x7c00 : 0x7f80;
        top_k<uint32_t, S>(call, view, k, largest,
                           [infinity](S bits) { return ordered_half(bits, infinity); });
      }
    } else if (is_low_precision_float(x.dtype)) {
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
