#include "base/value.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tbx {

RuntimeValue RuntimeValue::sequence(std::vector<RuntimeValue> elements) {
  RuntimeValue v;
  v.kind = Kind::sequence;
  v.elements = std::make_shared<std::vector<RuntimeValue>>(std::move(elements));
  return v;
}

RuntimeValue RuntimeValue::of_map(Tensor keys, Tensor values) {
  RuntimeValue v;
  v.kind = Kind::map;
  v.map = std::make_shared<const MapValue>(MapValue{std::move(keys), std::move(values)});
  return v;
}

std::vector<RuntimeValue>& RuntimeValue::own_elements() {
  TBX_INTERNAL(kind == Kind::sequence);
  if (elements.use_count() != 1) elements = std::make_shared<std::vector<RuntimeValue>>(*elements);
  return *elements;
}

const char* name_of(RuntimeValue::Kind kind) {
  switch (kind) {
  case RuntimeValue::Kind::none: return "an empty optional";
  case RuntimeValue::Kind::tensor: return "a tensor";
  case RuntimeValue::Kind::sequence: return "a sequence";
  case RuntimeValue::Kind::map: return "a map";
  }
  return "?";
}

namespace {

/// Rows of `count` elements between tensors seen as [outer][width]; strings are assigned, bytes copied.
void copy_rows(const Tensor& from, int64_t from_at, int64_t from_width, Tensor& to, int64_t to_at,
               int64_t to_width, int64_t rows, int64_t count) {
  if (count == 0) return;
  if (from.dtype == DType::string) {
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(from.strings->begin() + r * from_width + from_at, count,
                  to.strings->begin() + r * to_width + to_at);
    return;
  }
  int64_t w = size_of(from.dtype);
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(to.mutable_data() + (r * to_width + to_at) * w, from.data + (r * from_width + from_at) * w,
                static_cast<size_t>(count * w));
}

Tensor make_any(DType dtype, std::vector<int64_t> dims) {
  if (dtype != DType::string) return Tensor::make(dtype, std::move(dims));
  auto n = static_cast<size_t>(checked_numel(dims));
  return Tensor::of_strings(std::move(dims), std::vector<std::string>(n));
}

int64_t product(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

} // namespace

Tensor concatenate(const std::vector<const Tensor*>& parts, int64_t axis, bool new_axis) {
  TBX_INTERNAL(!parts.empty());
  const Tensor& first = *parts[0];
  auto rank = static_cast<int64_t>(first.dims.size()) + new_axis;
  TBX_MODEL(axis >= -rank && axis < rank, "axis {} is out of range for rank {}", axis, rank);
  if (axis < 0) axis += rank;
  std::vector<int64_t> dims = first.dims;
  int64_t total = 0;
  for (const Tensor* p : parts) {
    TBX_MODEL(p->dtype == first.dtype, "tensors of types {} and {} cannot be joined", name_of(first.dtype),
              name_of(p->dtype));
    bool fits = p->dims.size() == first.dims.size();
    for (size_t d = 0; fits && d < dims.size(); ++d)
      fits = p->dims[d] == dims[d] || (!new_axis && static_cast<int64_t>(d) == axis);
    TBX_MODEL(fits, "tensors of shapes [{}] and [{}] cannot be joined along axis {}",
              fmt::join(first.dims, ", "), fmt::join(p->dims, ", "), axis);
    TBX_MODEL(!__builtin_add_overflow(total, new_axis ? 1 : p->dims[axis], &total), "a size overflows");
  }
  if (new_axis)
    dims.insert(dims.begin() + axis, total);
  else
    dims[axis] = total;
  Tensor out = make_any(first.dtype, dims);
  if (out.numel() == 0) return out;
  int64_t rows = product({dims.data(), static_cast<size_t>(axis)});
  int64_t inner = product(std::span<const int64_t>(dims).subspan(static_cast<size_t>(axis) + 1));
  int64_t at = 0;
  for (const Tensor* p : parts) {
    int64_t width = (new_axis ? 1 : p->dims[axis]) * inner;
    copy_rows(*p, 0, width, out, at, total * inner, rows, width);
    at += width;
  }
  return out;
}

Tensor slice_of(const Tensor& t, int64_t axis, int64_t begin, int64_t end) {
  TBX_INTERNAL(axis >= 0 && axis < static_cast<int64_t>(t.dims.size()) && begin >= 0 && begin <= end &&
               end <= t.dims[axis]);
  std::vector<int64_t> dims = t.dims;
  dims[axis] = end - begin;
  Tensor out = make_any(t.dtype, dims);
  if (out.numel() == 0) return out;
  int64_t rows = product({dims.data(), static_cast<size_t>(axis)});
  int64_t inner = product(std::span<const int64_t>(dims).subspan(static_cast<size_t>(axis) + 1));
  copy_rows(t, begin * inner, t.dims[axis] * inner, out, 0, (end - begin) * inner, rows,
            (end - begin) * inner);
  return out;
}

} // namespace tbx
