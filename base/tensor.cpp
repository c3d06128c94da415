#include "base/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/budget.h"
#include "base/error.h"
#include "base/float_formats.h"

namespace tbx {

int64_t checked_numel(std::span<const int64_t> dims) {
  int64_t n = 1;
  bool empty = false;
  for (int64_t d : dims) {
    TBX_MODEL(d >= 0, "a dimension is {}", d);
    if (d == 0)
      empty = true;
    else
      TBX_MODEL(!__builtin_mul_overflow(n, d, &n), "the number of elements overflows 64 bits");
  }
  return empty ? 0 : n;
}

Tensor Tensor::make(DType dtype, std::vector<int64_t> dims) {
  int64_t bytes;
  TBX_MODEL(!__builtin_mul_overflow(checked_numel(dims), size_of(dtype), &bytes),
            "a tensor's size overflows 64 bits");
  size_t padded = (static_cast<size_t>(bytes) + 63) / 64 * 64 + 64;
  std::shared_ptr<Counted> counted;
  if (current_budget()) {
    counted = std::make_shared<Counted>();
    counted->add(bytes);
  }
  void* p = std::aligned_alloc(64, padded);
  if (!p) throw_model_error("cannot allocate a tensor of {} bytes", bytes);
  std::memset(p, 0, padded);
  Tensor t;
  t.dtype = dtype;
  t.dims = std::move(dims);
  t.data = static_cast<const std::byte*>(p);
  t.owner = std::shared_ptr<const void>(
      p, [counted = std::move(counted)](const void* q) { std::free(const_cast<void*>(q)); });
  return t;
}

Tensor Tensor::of_strings(std::vector<int64_t> dims, std::vector<std::string> values) {
  TBX_INTERNAL(checked_numel(dims) == static_cast<int64_t>(values.size()));
  Tensor t;
  t.dtype = DType::string;
  t.dims = std::move(dims);
  t.strings = std::make_shared<std::vector<std::string>>(std::move(values));
  return t;
}

Tensor Tensor::of_ints(std::span<const int64_t> values) {
  Tensor t = make(DType::i64, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as_mutable<int64_t>().begin());
  return t;
}

int64_t Tensor::numel() const { return checked_numel(dims); }

void drop_pages(const Tensor& t) {
  if (!t.file_mapped) return;
  // Whole pages only: the first and last one may hold a neighbour's data.
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(t.data), end = begin + static_cast<uintptr_t>(t.bytes());
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  // A failure leaves the pages in memory, which is no error.
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

namespace {

template <class F> auto with_element(const Tensor& t, int64_t i, F&& f) {
  switch (t.dtype) {
  case DType::f32: return f(t.as<float>()[i]);
  case DType::f64: return f(t.as<double>()[i]);
  case DType::i8:
  case DType::i4:
  case DType::i2: return f(t.as<int8_t>()[i]);
  case DType::u8:
  case DType::u4:
  case DType::u2: return f(t.as<uint8_t>()[i]);
  case DType::boolean: return f(static_cast<uint8_t>(t.as<uint8_t>()[i] != 0));
  case DType::i16: return f(t.as<int16_t>()[i]);
  case DType::u16: return f(t.as<uint16_t>()[i]);
  case DType::i32: return f(t.as<int32_t>()[i]);
  case DType::u32: return f(t.as<uint32_t>()[i]);
  case DType::i64: return f(t.as<int64_t>()[i]);
  case DType::u64: return f(t.as<uint64_t>()[i]);
  default: break;
  }
  if (is_low_precision_float(t.dtype)) {
    uint32_t bits = size_of(t.dtype) == 2 ? t.as<uint16_t>()[i] : t.as<uint8_t>()[i];
    return f(decode_float(t.dtype, bits));
  }
  throw_model_error("a {} tensor has no numeric elements", name_of(t.dtype));
}

} // namespace

double element_as_double(const Tensor& t, int64_t i) {
  return with_element(t, i, [](auto v) { return static_cast<double>(v); });
}

int64_t element_as_int(const Tensor& t, int64_t i) {
  return with_element(t, i, [](auto v) -> int64_t {
    if constexpr (std::is_floating_point_v<decltype(v)>) {
      // Conversion of what does not fit is undefined in C++; here it saturates, and NaN gives 0.
      if (v != v) return 0;
      if (v >= 0x1p63) return std::numeric_limits<int64_t>::max();
      if (v < -0x1p63) return std::numeric_limits<int64_t>::min();
    }
    return static_cast<int64_t>(v);
  });
}

std::vector<int64_t> to_ints(const Tensor& t) {
  if (t.dtype == DType::i8) return {t.as<int8_t>().begin(), t.as<int8_t>().end()};
  if (t.dtype == DType::u8) return {t.as<uint8_t>().begin(), t.as<uint8_t>().end()};
  std::vector<int64_t> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_int(t, static_cast<int64_t>(i));
  return values;
}

} // namespace tbx
