#include "importer/tensors.h"

#include <algorithm>
#include <cstring>

#include "base/budget.h"
#include "base/error.h"
#include "base/memory.h"
#include "graph/names.h"
#include "importer/tensor_places.h"

namespace tbx::importer {
namespace {

constexpr int kMaxRank = 64; // numpy's limit too

/// Types of less than a byte lie packed in files, the first element in the lowest bits.
bool is_packed(DType dtype) { return bits_of(dtype) > 0 && bits_of(dtype) < 8; }
/// In int32_data, packed bytes hold elements of 2 and 4 bits; those of 6 bits have an entry each.
bool is_packed_in_fields(DType dtype) { return is_packed(dtype) && 8 % bits_of(dtype) == 0; }

int64_t checked_bytes(int64_t count, int64_t size, const std::string& name) {
  int64_t bytes;
  TBX_MODEL(!__builtin_mul_overflow(count, size, &bytes), "tensor {}: its size in bytes overflows", name);
  return bytes;
}

/// Bytes in a file: packed sub-byte types are rounded up to whole bytes, here and nowhere else.
int64_t file_bytes(DType dtype, int64_t count, const std::string& name) {
  if (!is_packed(dtype)) return checked_bytes(count, size_of(dtype), name);
  return count / 8 * bits_of(dtype) + (count % 8 * bits_of(dtype) + 7) / 8;
}

void unpack(DType dtype, const std::byte* src, int64_t count, std::byte* dst) {
  const int bits = bits_of(dtype), mask = (1 << bits) - 1;
  bool sign = dtype == DType::i4 || dtype == DType::i2;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t byte = i / 8 * bits + i % 8 * bits / 8;
    const int bit = static_cast<int>(i % 8 * bits % 8);
    int value = static_cast<int>(src[byte]);
    if (bit + bits > 8) value |= static_cast<int>(src[byte + 1]) << 8;
    value = value >> bit & mask;
    if (sign && value >> (bits - 1)) value -= 1 << bits;
    dst[i] = static_cast<std::byte>(value);
  }
}

void pack(DType dtype, const std::byte* src, int64_t count, std::byte* dst) {
  const int bits = bits_of(dtype), mask = (1 << bits) - 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t byte = i / 8 * bits + i % 8 * bits / 8;
    const int bit = static_cast<int>(i % 8 * bits % 8), value = (static_cast<int>(src[i]) & mask) << bit;
    dst[byte] |= static_cast<std::byte>(value);
    if (bit + bits > 8) dst[byte + 1] |= static_cast<std::byte>(value >> 8);
  }
}

bool has_only_0_and_1(const std::byte* data, int64_t count) {
  return std::all_of(data, data + count, [](std::byte b) { return b <= std::byte{1}; });
}

/// Kernels read whole elements; complex ones as two scalars.
bool is_aligned(const std::byte* data, DType dtype) {
  int64_t unit = std::min<int64_t>(size_of(dtype), 8);
  return reinterpret_cast<uintptr_t>(data) % unit == 0;
}

template <class To, class From> Tensor convert(DType dtype, std::vector<int64_t> dims, const From& field) {
  Tensor t = Tensor::make(dtype, std::move(dims));
  auto* out = reinterpret_cast<To*>(t.mutable_data());
  for (auto v : field) *out++ = static_cast<To>(v);
  return t;
}

Tensor convert_int32s(DType dtype, std::vector<int64_t> dims,
                      const google::protobuf::RepeatedField<int32_t>& field) {
  if (is_packed_in_fields(dtype)) { // one packed byte per int32
    std::vector<std::byte> bytes(field.size());
    std::transform(field.begin(), field.end(), bytes.begin(),
                   [](int32_t v) { return static_cast<std::byte>(v & 0xff); });
    Tensor t = Tensor::make(dtype, std::move(dims));
    unpack(dtype, bytes.data(), t.numel(), t.mutable_data());
    return t;
  }
  if (dtype == DType::boolean) {
    Tensor t = convert<uint8_t>(dtype, std::move(dims), field);
    for (uint8_t& v : t.as_mutable<uint8_t>()) v = v != 0;
    return t;
  }
  if (is_packed(dtype)) {
    Tensor t = convert<uint8_t>(dtype, std::move(dims), field);
    for (uint8_t& v : t.as_mutable<uint8_t>()) v &= static_cast<uint8_t>((1 << bits_of(dtype)) - 1);
    return t;
  }
  switch (size_of(dtype)) {
  case 1: return convert<uint8_t>(dtype, std::move(dims), field);
  case 2: return convert<uint16_t>(dtype, std::move(dims), field);
  default: return convert<int32_t>(dtype, std::move(dims), field);
  }
}

enum class Field { float_data, int32_data, string_data, int64_data, double_data, uint64_data };

struct FieldUse {
  Field field;
  const char* name;
  int64_t size; ///< entries the file has
};

/// The typed field that holds elements of `dtype` when there is no raw data (onnx.proto, TensorProto).
FieldUse field_of(DType dtype, const onnx::TensorProto& p) {
  switch (dtype) {
  case DType::f32:
  case DType::c64: return {Field::float_data, "float_data", p.float_data_size()};
  case DType::f64:
  case DType::c128: return {Field::double_data, "double_data", p.double_data_size()};
  case DType::i64: return {Field::int64_data, "int64_data", p.int64_data_size()};
  case DType::u32:
  case DType::u64: return {Field::uint64_data, "uint64_data", p.uint64_data_size()};
  case DType::string: return {Field::string_data, "string_data", p.string_data_size()};
  default: return {Field::int32_data, "int32_data", p.int32_data_size()};
  }
}

int64_t total_entries(const onnx::TensorProto& p) {
  return int64_t{p.float_data_size()} + p.int32_data_size() + p.string_data_size() + p.int64_data_size() +
         p.double_data_size() + p.uint64_data_size();
}

Tensor from_field(DType dtype, std::vector<int64_t> dims, const onnx::TensorProto& p, Field field) {
  switch (field) {
  case Field::float_data: return convert<float>(dtype, std::move(dims), p.float_data());
  case Field::double_data: return convert<double>(dtype, std::move(dims), p.double_data());
  case Field::int64_data: return convert<int64_t>(dtype, std::move(dims), p.int64_data());
  case Field::uint64_data:
    if (dtype == DType::u32) return convert<uint32_t>(dtype, std::move(dims), p.uint64_data());
    return convert<uint64_t>(dtype, std::move(dims), p.uint64_data());
  case Field::string_data:
    return Tensor::of_strings(std::move(dims), {p.string_data().begin(), p.string_data().end()});
  case Field::int32_data: return convert_int32s(dtype, std::move(dims), p.int32_data());
  }
  return {};
}

/// A tensor over bytes of the file's form that `owner` keeps alive; copied only where our form differs.
Tensor view_or_copy(DType dtype, std::vector<int64_t> dims, const std::byte* bytes,
                    std::shared_ptr<const void> owner) {
  int64_t count = checked_numel(dims);
  if (is_packed(dtype)) {
    Tensor t = Tensor::make(dtype, std::move(dims));
    unpack(dtype, bytes, count, t.mutable_data());
    return t;
  }
  bool normal = dtype != DType::boolean || has_only_0_and_1(bytes, count);
  if (normal && is_aligned(bytes, dtype)) {
    Tensor t;
    t.dtype = dtype;
    t.dims = std::move(dims);
    t.data = bytes;
    t.owner = std::move(owner);
    return t;
  }
  Tensor t = Tensor::make(dtype, std::move(dims));
  if (count > 0) std::memcpy(t.mutable_data(), bytes, count * size_of(dtype));
  if (!normal)
    for (uint8_t& v : t.as_mutable<uint8_t>()) v = v != 0;
  return t;
}

} // namespace

DType to_dtype(int32_t data_type, const std::string& what) {
  auto type = dtype_from_number(data_type);
  TBX_MODEL(type, "{}: {} is not an element type of ONNX", what, data_type);
  return *type;
}

std::shared_ptr<const Tensor> TensorReader::read(onnx::TensorProto& p, const std::string& what) {
  check_stop_often();
  if (++tensors_ > options_.max_tensors)
    throw Error(ErrorKind::model, fmt::format("the model has over {} tensors", options_.max_tensors),
                how_to_raise("max_tensors"));
  const std::string name = p.name().empty() ? what : shown(p.name());
  DType dtype = to_dtype(p.data_type(), "tensor " + name);
  TBX_MODEL(!p.has_segment(), "tensor {} is stored in segments, which ONNX does not define", name);
  TBX_MODEL(p.dims_size() <= kMaxRank, "tensor {} has rank {}; the limit is {}", name, p.dims_size(),
            kMaxRank);
  std::vector<int64_t> dims(p.dims().begin(), p.dims().end());
  for (int64_t d : dims) TBX_MODEL(d >= 0, "tensor {} has the negative dimension {}", name, d);
  int64_t count;
  try {
    count = checked_numel(dims);
  } catch (const Error& e) {
    throw_model_error("tensor {}: {}", name, e.message());
  }
  int64_t bytes = checked_bytes(count, std::max<int64_t>(size_of(dtype), 1), name);
  if (bytes > options_.max_tensor_bytes)
    throw Error(
        ErrorKind::model,
        fmt::format("tensor {} has {} bytes, over the limit of {}", name, bytes, options_.max_tensor_bytes),
        how_to_raise("max_tensor_bytes"));

  int64_t entries = total_entries(p);
  const bool has_raw = !p.raw_data().empty() || raw_.place_of(p);
  if (p.data_location() == onnx::TensorProto::EXTERNAL) {
    TBX_MODEL(entries == 0 && !has_raw, "tensor {} has both external data and data of its own", name);
    TBX_MODEL(dtype != DType::string, "tensor {}: strings cannot be external data", name);
    ExternalData::Entries pairs;
    for (const auto& e : p.external_data()) pairs.emplace_back(e.key(), e.value());
    auto slice = external_.read(p.name().empty() ? what : p.name(), pairs, file_bytes(dtype, count, name));
    if (options_.places) options_.places->note(slice.owner, slice.file, slice.location, 0);
    auto tensor = std::make_shared<Tensor>(
        view_or_copy(dtype, std::move(dims), slice.bytes.data(), std::move(slice.owner)));
    tensor->file_mapped = tensor->data == slice.bytes.data();
    return tensor;
  }
  if (has_raw) {
    TBX_MODEL(entries == 0, "tensor {} has both raw data and a typed field", name);
    TBX_MODEL(dtype != DType::string, "tensor {}: strings cannot be raw data", name);
    return std::make_shared<Tensor>(from_raw(dtype, std::move(dims), p, name));
  }
  FieldUse use = field_of(dtype, p);
  TBX_MODEL(entries == use.size, "tensor {} of type {} has data in another field than {}", name,
            name_of(dtype), use.name);
  int64_t expected = is_complex(dtype)            ? checked_bytes(count, 2, name)
                     : is_packed_in_fields(dtype) ? file_bytes(dtype, count, name)
                                                  : count;
  TBX_MODEL(use.size == expected, "tensor {} of type {} and shape [{}] has {} entries in {}, expected {}",
            name, name_of(dtype), fmt::join(dims, ", "), use.size, use.name, expected);
  return std::make_shared<Tensor>(from_field(dtype, std::move(dims), p, use.field));
}

Tensor TensorReader::from_raw(DType dtype, std::vector<int64_t> dims, onnx::TensorProto& p,
                              const std::string& name) {
  int64_t expected = file_bytes(dtype, checked_numel(dims), name);
  const std::optional<RawData::Place> place = raw_.place_of(p);
  auto size = static_cast<int64_t>(place ? place->bytes : p.raw_data().size());
  TBX_MODEL(size == expected, "tensor {} of type {} and shape [{}] has {} bytes of raw data, expected {}",
            name, name_of(dtype), fmt::join(dims, ", "), size, expected);
  if (place) {
    auto bytes = raw_.copy(*place);
    const std::byte* first = bytes.get();
    if (options_.places) options_.places->note(bytes, {first, place->bytes}, "", place->at);
    return view_or_copy(dtype, std::move(dims), first, std::move(bytes));
  }
  auto owner = std::make_shared<std::string>(std::move(*p.mutable_raw_data()));
  p.clear_raw_data();
  const auto* bytes = reinterpret_cast<const std::byte*>(owner->data());
  return view_or_copy(dtype, std::move(dims), bytes, std::move(owner));
}

std::shared_ptr<const Tensor> TensorReader::read(onnx::SparseTensorProto& p, const std::string& what) {
  const std::string name = p.values().name().empty() ? what : shown(p.values().name());
  auto values = read(*p.mutable_values(), what);
  TBX_MODEL(values->dims.size() == 1, "sparse tensor {}: its values have rank {}, expected 1", name,
            values->dims.size());
  TBX_MODEL(values->dtype != DType::string, "sparse tensor {}: strings cannot be sparse", name);
  TBX_MODEL(p.dims_size() > 0 && p.dims_size() <= kMaxRank, "sparse tensor {} has rank {}, expected 1 to {}",
            name, p.dims_size(), kMaxRank);
  std::vector<int64_t> dims(p.dims().begin(), p.dims().end());
  int64_t numel = 1;
  for (int64_t d : dims)
    TBX_MODEL(d > 0 && !__builtin_mul_overflow(numel, d, &numel),
              "sparse tensor {} has the impossible shape [{}]", name, fmt::join(dims, ", "));
  const int64_t bytes = checked_bytes(numel, size_of(values->dtype), name);
  // A few bytes of a file stand for each of them: together they have one limit, which the machine's memory
  // bounds, too.
  const int64_t left = std::min(options_.max_dense_bytes, memory_limit() / 2) - dense_bytes_;
  if (bytes > std::min(options_.max_tensor_bytes, left))
    throw Error(ErrorKind::model,
                fmt::format("sparse tensor {} of shape [{}] is too large to be made dense", name,
                            fmt::join(dims, ", ")),
                how_to_raise("max_dense_bytes"));

  int64_t nonzeros = values->dims[0];
  dense_bytes_ += bytes;
  Tensor dense = Tensor::make(values->dtype, dims);
  if (nonzeros == 0) return std::make_shared<Tensor>(std::move(dense));
  auto indices = read(*p.mutable_indices(), what + " (indices)");
  auto rank = static_cast<int64_t>(dims.size());
  bool linear = indices->dims.size() == 1;
  TBX_MODEL(indices->dtype == DType::i64 && indices->dims.size() <= 2 && !indices->dims.empty() &&
                indices->dims[0] == nonzeros && (linear || indices->dims[1] == rank),
            "sparse tensor {}: its indices have type {} and shape [{}], expected int64 [{}] or [{}, {}]",
            name, name_of(indices->dtype), fmt::join(indices->dims, ", "), nonzeros, nonzeros, rank);
  auto index = indices->as<int64_t>();
  int64_t size = size_of(dense.dtype);
  for (int64_t i = 0; i < nonzeros; ++i) {
    int64_t at = 0;
    for (int64_t axis = 0; axis < (linear ? 1 : rank); ++axis) {
      int64_t v = index[linear ? i : i * rank + axis], extent = linear ? numel : dims[axis];
      TBX_MODEL(v >= 0 && v < extent, "sparse tensor {}: index {} is outside [0, {})", name, v, extent);
      at = at * extent + v;
    }
    std::memcpy(dense.mutable_data() + at * size, values->data + i * size, size);
  }
  return std::make_shared<Tensor>(std::move(dense));
}

onnx::TensorProto to_proto(const Tensor& t, const std::string& name) {
  onnx::TensorProto p;
  p.set_data_type(static_cast<int32_t>(t.dtype));
  if (!name.empty()) p.set_name(name);
  for (int64_t d : t.dims) p.add_dims(d);
  int64_t count = t.numel();
  if (t.dtype == DType::string) {
    for (const std::string& s : *t.strings) p.add_string_data(s);
  } else if (is_packed(t.dtype)) {
    std::string bytes(file_bytes(t.dtype, count, name), '\0');
    pack(t.dtype, t.data, count, reinterpret_cast<std::byte*>(bytes.data()));
    p.set_raw_data(std::move(bytes));
  } else {
    p.set_raw_data(t.data, t.bytes());
  }
  return p;
}

} // namespace tbx::importer
