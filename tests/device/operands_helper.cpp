#include "operands_helper.h"

#include <gtest/gtest.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <cstring>
#include <numeric>

#include "base/float_formats.h"

namespace tbx::test {

using namespace extern_kernels;

namespace {

thread_local int64_t operands_of_case = 0;

class BeginsCases : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { end_case(); }
};
[[maybe_unused]] const bool listens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new BeginsCases);
  return true;
}();

/// 64 bits that look random: SplitMix64.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Calls `f(T{}, encode, decode)` with the C++ type that stores `type` and its way from double and back.
template <class F> void with_type(DType type, F&& f) {
  auto plain = [&]<class T>(T t) {
    f(
        t, [](double v) { return static_cast<T>(v); }, [](T v) { return static_cast<double>(v); });
  };
  switch (type) {
  case DType::f32: return plain(float{});
  case DType::f64: return plain(double{});
  case DType::i8: return plain(int8_t{});
  case DType::u8: return plain(uint8_t{});
  case DType::i32: return plain(int32_t{});
  case DType::i64: return plain(int64_t{});
  default:
    return f(
        uint16_t{},
        [type](double v) { return static_cast<uint16_t>(encode_float(type, static_cast<float>(v))); },
        [type](uint16_t v) -> double { return decode_float(type, v); });
  }
}

/// Calls `f(i)` for each of `n` elements; operands of large layers take longer than their kernels else.
template <class F> void for_each_parallel(size_t n, const F& f) {
  constexpr size_t kGrain = 1 << 14;
  tbb::parallel_for(tbb::blocked_range<size_t>(0, n, kGrain), [&](const tbb::blocked_range<size_t>& part) {
    for (size_t i = part.begin(); i < part.end(); ++i) f(i);
  });
}

/// Decodes all elements of `t`; `to` has room for them.
void decode(const Operand& t, double* to) {
  with_type(t.dtype, [&]<class T>(T, auto, auto decoded) {
    const auto* from = reinterpret_cast<const T*>(t.bytes.data());
    for_each_parallel(t.bytes.size() / sizeof(T), [&](size_t i) { to[i] = decoded(from[i]); });
  });
}

} // namespace

void end_case() { operands_of_case = 0; }

Operand random_operand(DType dtype, Dims sizes, std::vector<int> order) {
  Operand t{dtype, sizes, Dims(sizes.size()), {}};
  if (order.empty()) {
    order.resize(sizes.size());
    std::iota(order.begin(), order.end(), 0);
  }
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    t.strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  uint64_t seed = mixed(static_cast<uint64_t>(dtype)) + static_cast<uint64_t>(++operands_of_case);
  for (size_t d = 0; d < sizes.size(); ++d) {
    seed = mixed(seed + static_cast<uint64_t>(sizes[d]));
    seed = mixed(seed + static_cast<uint64_t>(t.strides[d]));
  }
  const auto n = static_cast<size_t>(step);
  t.bytes.resize(n * static_cast<size_t>(size_of(dtype)));
  const int low = dtype == DType::u8 ? 0 : -9, high = 9;
  with_type(dtype, [&]<class T>(T, auto encoded, auto) {
    auto* to = reinterpret_cast<T*>(t.bytes.data());
    for_each_parallel(n, [&](size_t i) {
      const uint64_t bits = mixed(seed + i);
      to[i] = is_float(dtype) ? encoded(static_cast<double>(bits >> 11) * 0x1p-52 - 1)
                              : static_cast<T>(low + static_cast<int>(bits % (high - low + 1)));
    });
  });
  return t;
}

Operand bytes_operand(DType dtype, Dims sizes, std::vector<int> order) {
  Operand o = random_operand(dtype, std::move(sizes), std::move(order));
  unsigned state = 12345;
  for (char& b : o.bytes) b = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return o;
}

Operand zero_point(int32_t value) {
  Operand z = random_operand(DType::i32, {1});
  *reinterpret_cast<int32_t*>(z.bytes.data()) = value;
  return z;
}

std::vector<int> channels_last(size_t rank) {
  std::vector<int> order{0};
  for (size_t d = 2; d < rank; ++d) order.push_back(static_cast<int>(d));
  order.push_back(1);
  return order;
}

std::vector<double> values_of(const Operand& t) {
  std::vector<double> v(t.bytes.size() / static_cast<size_t>(size_of(t.dtype)));
  decode(t, v.data());
  return v;
}

Operand widened(const Operand& t) {
  if (!t.present() || is_integer(t.dtype)) return t;
  Operand w{DType::f64, t.sizes, t.strides, {}};
  w.bytes.resize(t.bytes.size() / static_cast<size_t>(size_of(t.dtype)) * sizeof(double));
  decode(t, reinterpret_cast<double*>(w.bytes.data()));
  return w;
}

TensorRef ref_of(const Operand& t, void* data) {
  return t.present() ? TensorRef{data, t.dtype, t.sizes, t.strides} : TensorRef{};
}

OperandInfo info_of(const Operand& t) {
  OperandInfo i{t.dtype, t.sizes, t.strides, nullptr};
  if (t.constant) {
    Tensor c = Tensor::make(t.dtype, t.sizes);
    if (!t.bytes.empty()) std::memcpy(const_cast<std::byte*>(c.data), t.bytes.data(), t.bytes.size());
    i.constant = std::make_shared<const Tensor>(std::move(c));
  }
  return i;
}

std::vector<OperandInfo> infos_of(const std::vector<Operand>& operands) {
  std::vector<OperandInfo> infos;
  for (const Operand& t : operands) infos.push_back(info_of(t));
  return infos;
}

} // namespace tbx::test
