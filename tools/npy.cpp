#include "tools/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>

#include "base/dtype.h"
#include "tools/files.h"

namespace tbx::tools {
namespace {

struct NumpyType {
  const char* descr;
  DType type;
};
constexpr NumpyType kNumpyTypes[] = {{"<f4", DType::f32},     {"<f8", DType::f64},  {"<f2", DType::f16},
                                     {"|b1", DType::boolean}, {"|i1", DType::i8},   {"|u1", DType::u8},
                                     {"<i2", DType::i16},     {"<u2", DType::u16},  {"<i4", DType::i32},
                                     {"<u4", DType::u32},     {"<i8", DType::i64},  {"<u8", DType::u64},
                                     {"<c8", DType::c64},     {"<c16", DType::c128}};

/// numpy's '<U5' strings are UTF-32, padded with zeros. ONNX's are UTF-8.
std::string to_utf8(const char* data, size_t characters) {
  std::string out;
  for (size_t i = 0; i < characters; ++i) {
    uint32_t c = 0;
    std::memcpy(&c, data + 4 * i, 4);
    if (c == 0) break;
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | c >> 12);
      out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | (c >> 18 & 7));
      out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
      out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

/// Bytes that are no UTF-8 become U+FFFD.
std::u32string to_utf32(const std::string& s) {
  std::u32string out;
  for (size_t i = 0; i < s.size();) {
    auto lead = static_cast<unsigned char>(s[i]);
    int more = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : -1;
    char32_t c = more == 0 ? lead : more < 0 ? 0 : lead & (0x3F >> more);
    bool good = more >= 0 && i + static_cast<size_t>(more) < s.size();
    for (int k = 1; good && k <= more; ++k) {
      auto next = static_cast<unsigned char>(s[i + static_cast<size_t>(k)]);
      good = next >> 6 == 2;
      c = c << 6 | (next & 0x3F);
    }
    out += good ? c : U'\uFFFD';
    i += good ? static_cast<size_t>(more) + 1 : 1;
  }
  return out;
}

/// Product of sizes; fails on negative ones and on more than a terabyte of elements.
int64_t believable_numel(const std::string& path, const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(n, d, &n) || n > int64_t{1} << 40)
      fail(path, fmt::format("unbelievable shape {}", shape_text(dims)));
  return n;
}

/// What 'descr' says of an element.
struct Element {
  int32_t type = 0;
  size_t width = 0;       ///< bytes
  size_t unit = 0;        ///< bytes whose order a foreign file has reversed
  bool text = false;      ///< '<U5': UTF-32
  bool byte_text = false; ///< '|S5': bytes
  bool swapped = false;
};

/// The text between quotes after 'descr': empty for a structured type, which is a list.
std::string descr_of(const std::string& header) {
  size_t at = header.find("'descr':");
  if (at == std::string::npos) return {};
  at = header.find_first_not_of(' ', at + 8);
  if (at == std::string::npos || header[at] != '\'') return {};
  size_t end = header.find('\'', at + 1);
  return end == std::string::npos ? std::string() : header.substr(at + 1, end - at - 1);
}

Element element_of(const std::string& path, const std::string& header) {
  std::string descr = descr_of(header);
  if (descr.size() < 2)
    fail(path, "the elements are of a structured type; an array of numbers or strings is needed");
  if (descr == "|O")
    fail(path,
         "an array of Python objects; strings are saved with a dtype such as '<U8' (array.astype(str))");
  Element e;
  e.swapped = descr[0] == '>';
  char kind = descr[1];
  if (kind == 'U' || kind == 'S') {
    size_t length = 0;
    auto parsed = std::from_chars(descr.data() + 2, descr.data() + descr.size(), length);
    if (parsed.ec != std::errc() || length > size_t{1} << 30) fail(path, "unbelievable length of strings");
    e.type = OwnedTensor::kString;
    (kind == 'U' ? e.text : e.byte_text) = true;
    e.unit = kind == 'U' ? 4 : 1;
    e.width = e.unit * length;
    return e;
  }
  if (descr.substr(1) == "V1") descr = "|u1"; // how numpy saves ml_dtypes
  if (descr.substr(1) == "V2") descr = "<u2";
  for (const NumpyType& n : kNumpyTypes)
    if (descr.substr(1) == n.descr + 1) e.type = static_cast<int32_t>(n.type);
  if (e.type == 0) fail(path, fmt::format("element type '{}' is none of ONNX's", descr));
  e.width = static_cast<size_t>(element_size(e.type));
  e.unit = is_complex(static_cast<DType>(e.type)) ? e.width / 2 : e.width;
  return e;
}

std::vector<int64_t> shape_of(const std::string& path, const std::string& header) {
  size_t open = header.find('(', header.find("'shape'")), close = header.find(')', open);
  if (open == std::string::npos || close == std::string::npos) fail(path, "no shape in the header");
  std::vector<int64_t> dims;
  std::stringstream shape(header.substr(open + 1, close - open - 1));
  for (std::string d; std::getline(shape, d, ',');) {
    size_t digit = d.find_first_of("0123456789");
    if (digit == std::string::npos) continue;
    int64_t size = -1;
    std::from_chars(d.data() + digit, d.data() + d.size(), size);
    dims.push_back(size);
  }
  return dims;
}

/// Elements in row-major order from elements in column-major order.
std::string turned(const std::string& data, const std::vector<int64_t>& dims, size_t width) {
  std::string out(data.size(), '\0');
  std::vector<int64_t> index(dims.size(), 0), strides(dims.size(), 1);
  for (size_t d = 1; d < dims.size(); ++d) strides[d] = strides[d - 1] * dims[d - 1];
  size_t from = 0; // in elements
  for (size_t to = 0; to < out.size(); to += width) {
    std::memcpy(out.data() + to, data.data() + from * width, width);
    for (size_t d = dims.size(); d-- > 0;) {
      from += static_cast<size_t>(strides[d]);
      if (++index[d] < dims[d]) break;
      from -= static_cast<size_t>(strides[d] * dims[d]);
      index[d] = 0;
    }
  }
  return out;
}

std::string byte_text(const char* data, size_t width) {
  while (width > 0 && data[width - 1] == '\0') --width;
  return {data, width};
}

} // namespace

OwnedTensor parse_npy(const std::string& path, const std::string& s) {
  if (s.size() < 12 || s.compare(0, 6, "\x93NUMPY") != 0) fail(path, "not a .npy file");
  bool wide = s[6] >= 2;
  uint32_t length = 0;
  std::memcpy(&length, s.data() + 8, wide ? 4 : 2);
  size_t start = (wide ? 12 : 10) + size_t{length};
  if (start > s.size()) fail(path, "the header is cut short");
  const std::string header = s.substr(wide ? 12 : 10, length);
  const Element e = element_of(path, header);
  OwnedTensor t;
  t.type = e.type;
  t.dims = shape_of(path, header);
  auto n = static_cast<size_t>(believable_numel(path, t.dims));
  if (e.width != 0 && (s.size() - start) / e.width < n) fail(path, "the data is cut short");
  if (e.width == 0 && n > s.size()) fail(path, "unbelievable number of empty strings");
  std::string data = s.substr(start, n * e.width);
  if (e.swapped && e.unit > 1)
    for (size_t i = 0; i < data.size(); i += e.unit) std::reverse(&data[i], &data[i] + e.unit);
  if (header.find("'fortran_order': True") != std::string::npos && e.width != 0)
    data = turned(data, t.dims, e.width);
  if (e.text || e.byte_text) {
    for (size_t i = 0; i < n; ++i) {
      const char* element = data.data() + i * e.width;
      t.strings.push_back(e.text ? to_utf8(element, e.width / 4) : byte_text(element, e.width));
    }
  } else {
    t.bytes.resize(data.size());
    if (!data.empty()) std::memcpy(t.bytes.data(), data.data(), data.size());
  }
  return t;
}

std::string to_npy(const OwnedTensor& t) {
  std::string descr, data;
  for (const NumpyType& n : kNumpyTypes)
    if (t.type == static_cast<int32_t>(n.type)) descr = n.descr;
  if (t.type == OwnedTensor::kString) {
    std::vector<std::u32string> wide;
    size_t longest = 1;
    for (const std::string& s : t.strings) longest = std::max(longest, wide.emplace_back(to_utf32(s)).size());
    descr = fmt::format("<U{}", longest);
    for (std::u32string& s : wide) {
      s.resize(longest, U'\0');
      data.append(reinterpret_cast<const char*>(s.data()), s.size() * 4);
    }
  } else {
    if (descr.empty())
      descr = element_size(t.type) == 2 ? "<u2" : "|u1"; // narrow types numpy lacks: their bits
    data.assign(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  }
  std::string shape;
  for (int64_t d : t.dims) shape += fmt::format("{}, ", d);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string s("\x93NUMPY\x01\x00", 8);
  auto length = static_cast<uint16_t>(header.size());
  s.append(reinterpret_cast<const char*>(&length), 2);
  return s + header + data;
}

bool numpy_has(int32_t type) {
  return type == OwnedTensor::kString ||
         std::any_of(std::begin(kNumpyTypes), std::end(kNumpyTypes),
                     [&](const NumpyType& n) { return static_cast<int32_t>(n.type) == type; });
}

} // namespace tbx::tools
