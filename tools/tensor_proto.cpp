// onnx.TensorProto from the wire format, as the test data of ONNX models are stored
// (test_data_set_0/input_0.pb).
#include <fmt/format.h>

#include <algorithm>

#include "base/dtype.h"
#include "tools/files.h"

namespace tbx::tools {
namespace {

/// Walks the fields of one message. https://protobuf.dev/programming-guides/encoding
class Reader {
public:
  Reader(const std::string& path, std::string_view s) : path_(path), s_(s) {}

  bool done() const { return at_ >= s_.size(); }

  [[noreturn]] void fail(const std::string& why) const { throw UsageError(path_ + ": " + why); }

  uint64_t varint() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (done()) fail("the message is cut short");
      auto b = static_cast<uint8_t>(s_[at_++]);
      v |= uint64_t{b & 0x7Fu} << shift;
      if (!(b & 0x80)) return v;
    }
    fail("not a TensorProto: a number is too long");
  }

  std::string_view bytes(uint64_t n) {
    if (n > s_.size() - at_) fail("not a TensorProto, or cut short: a field is longer than the file");
    std::string_view part = s_.substr(at_, n);
    at_ += n;
    return part;
  }

private:
  const std::string& path_;
  std::string_view s_;
  size_t at_ = 0;
};

enum Field {
  kDims = 1,
  kType = 2,
  kFloats = 4,
  kInt32s = 5,
  kStrings = 6,
  kInt64s = 7,
  kRaw = 9,
  kDoubles = 10,
  kUint64s = 11,
  kExternal = 13
};

} // namespace

OwnedTensor parse_tensor_proto(const std::string& path, const std::string& bytes) {
  OwnedTensor t;
  t.type = 0;
  std::string raw, fixed; // raw_data; float_data and double_data
  std::vector<uint64_t> numbers;
  bool has_raw = false;
  Reader in(path, bytes);
  while (!in.done()) {
    uint64_t key = in.varint(), field = key >> 3, wire = key & 7;
    bool varints = field == kDims || field == kInt32s || field == kInt64s || field == kUint64s;
    auto number = [&](uint64_t v) {
      if (field == kDims)
        t.dims.push_back(static_cast<int64_t>(v));
      else
        numbers.push_back(v);
    };
    if (field == kExternal) in.fail("external data is not supported; store raw_data");
    if (wire == 0) {
      uint64_t v = in.varint();
      if (field == kType) t.type = static_cast<int32_t>(v);
      if (varints) number(v);
    } else if (wire == 2) {
      std::string_view part = in.bytes(in.varint());
      if (varints)
        for (Reader packed(path, part); !packed.done();) number(packed.varint());
      else if (field == kFloats || field == kDoubles)
        fixed += part;
      else if (field == kStrings)
        t.strings.emplace_back(part);
      else if (field == kRaw)
        has_raw = true, raw = part;
    } else if (wire == 1 || wire == 5) {
      std::string_view part = in.bytes(wire == 1 ? 8 : 4);
      if (field == kFloats || field == kDoubles) fixed += part;
    } else {
      in.fail("not a TensorProto");
    }
  }
  int64_t width = dtype_from_number(t.type) ? element_size(t.type) : 0;
  if (width == 0 && t.type != OwnedTensor::kString)
    in.fail(fmt::format("not a TensorProto: element type {}", t.type));
  int64_t n = 1;
  for (int64_t d : t.dims)
    if (d < 0 || __builtin_mul_overflow(n, d, &n) || n > int64_t{1} << 40)
      in.fail(fmt::format("unbelievable shape {}", shape_text(t.dims)));
  auto type = static_cast<DType>(t.type);
  if (bits_of(type) < 8 && type != DType::string) in.fail("types below 8 bits are not supported; use .npy");
  size_t have = t.strings.size();
  if (type != DType::string) {
    if (!has_raw && !numbers.empty()) {
      for (uint64_t v : numbers)
        fixed.append(reinterpret_cast<const char*>(&v),
                     static_cast<size_t>(std::min<int64_t>(width, 8))); // little-endian
    }
    const std::string& data = has_raw ? raw : fixed;
    if (data.size() % static_cast<size_t>(width) != 0) in.fail("the data does not fit the element type");
    const auto* b = reinterpret_cast<const std::byte*>(data.data());
    t.bytes.assign(b, b + data.size());
    have = data.size() / static_cast<size_t>(width);
  }
  if (static_cast<int64_t>(have) != n)
    in.fail(fmt::format("{} elements for the shape {}", have, shape_text(t.dims)));
  return t;
}

} // namespace tbx::tools
