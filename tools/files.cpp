#include "tools/files.h"

#include <fmt/format.h>
#include <png.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/dtype.h"

namespace tbx::tools {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw UsageError(fmt::format("{}: {}", path, why));
}

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
int64_t checked_numel(const std::string& path, const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(n, d, &n) || n > int64_t{1} << 40)
      fail(path, fmt::format("unbelievable shape {}", shape_text(dims)));
  return n;
}

/// numpy's format, version 1 to 3: magic, header length, a Python dict literal, data.
OwnedTensor parse_npy(const std::string& path, const std::string& s) {
  if (s.size() < 12 || s.compare(0, 6, "\x93NUMPY") != 0) fail(path, "not a .npy file");
  bool wide = s[6] >= 2;
  uint32_t length = 0;
  std::memcpy(&length, s.data() + 8, wide ? 4 : 2);
  size_t start = (wide ? 12 : 10) + length;
  if (start > s.size()) fail(path, "the header is cut short");
  std::string header = s.substr(wide ? 12 : 10, length);
  if (header.find("'fortran_order': True") != std::string::npos)
    fail(path, "column-major arrays are not supported");
  OwnedTensor t;
  t.type = 0;
  for (const NumpyType& n : kNumpyTypes)
    if (header.find(fmt::format("'{}'", n.descr)) != std::string::npos) t.type = static_cast<int32_t>(n.type);
  size_t characters = 0, text = header.find("'<U");
  if (text != std::string::npos) {
    t.type = OwnedTensor::kString;
    auto parsed = std::from_chars(header.data() + text + 3, header.data() + header.size(), characters);
    if (parsed.ec != std::errc() || characters > size_t{1} << 30)
      fail(path, "unbelievable length of strings");
  }
  if (t.type == 0) fail(path, "unsupported element type in " + header);
  size_t open = header.find('(', header.find("'shape'")), close = header.find(')', open);
  if (open == std::string::npos || close == std::string::npos) fail(path, "no shape in the header");
  std::stringstream shape(header.substr(open + 1, close - open - 1));
  for (std::string d; std::getline(shape, d, ',');) {
    size_t digit = d.find_first_of("0123456789");
    if (digit == std::string::npos) continue;
    int64_t size = -1;
    std::from_chars(d.data() + digit, d.data() + d.size(), size);
    t.dims.push_back(size);
  }
  auto n = static_cast<size_t>(checked_numel(path, t.dims));
  size_t width = text != std::string::npos ? 4 * characters : static_cast<size_t>(element_size(t.type));
  if (width != 0 && (s.size() - start) / width < n) fail(path, "the data is cut short");
  const char* data = s.data() + start;
  if (text != std::string::npos) {
    if (width == 0 && n > s.size()) fail(path, "unbelievable number of empty strings");
    for (size_t i = 0; i < n; ++i) t.strings.push_back(to_utf8(data + i * width, characters));
  } else {
    t.bytes.resize(n * width);
    std::memcpy(t.bytes.data(), data, n * width);
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

std::string inflate_raw(const std::string& path, std::string_view in, size_t size) {
  std::string out(size, '\0');
  z_stream z{};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) fail(path, "zlib failed");
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  int status = inflate(&z, Z_FINISH);
  inflateEnd(&z);
  if (status != Z_STREAM_END) fail(path, "a member cannot be decompressed");
  return out;
}

template <class T> T at(const std::string& path, const std::string& s, size_t offset) {
  T v;
  if (offset + sizeof v > s.size()) fail(path, "the archive is cut short");
  std::memcpy(&v, s.data() + offset, sizeof v);
  return v;
}

bool ends_with(const std::string& s, std::string_view end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

} // namespace

std::vector<OwnedTensor> read_npz(const std::string& path) {
  std::string s = read_file(path);
  // The central directory has the sizes also when members were streamed.
  size_t end = s.rfind("PK\x05\x06");
  if (end == std::string::npos) fail(path, "not a .npz archive");
  auto count = at<uint16_t>(path, s, end + 10);
  size_t entry = at<uint32_t>(path, s, end + 16);
  std::vector<OwnedTensor> tensors;
  for (int i = 0; i < count; ++i) {
    if (at<uint32_t>(path, s, entry) != 0x02014b50) fail(path, "the directory is damaged");
    auto method = at<uint16_t>(path, s, entry + 10);
    size_t packed = at<uint32_t>(path, s, entry + 20), size = at<uint32_t>(path, s, entry + 24);
    auto name_length = at<uint16_t>(path, s, entry + 28), extra = at<uint16_t>(path, s, entry + 30),
         comment = at<uint16_t>(path, s, entry + 32);
    size_t local = at<uint32_t>(path, s, entry + 42);
    if (packed == 0xFFFFFFFF || size == 0xFFFFFFFF) fail(path, "members above 4 GB are not supported");
    std::string name = s.substr(entry + 46, name_length);
    size_t data = local + 30 + at<uint16_t>(path, s, local + 26) + at<uint16_t>(path, s, local + 28);
    if (data + packed > s.size()) fail(path, "a member is cut short");
    std::string_view raw(s.data() + data, packed);
    OwnedTensor t = parse_npy(path, method == 0 ? std::string(raw) : inflate_raw(path, raw, size));
    t.name = ends_with(name, ".npy") ? name.substr(0, name.size() - 4) : name;
    tensors.push_back(std::move(t));
    entry += 46u + name_length + extra + comment;
  }
  return tensors;
}

namespace {

std::string to_npz(const std::string& path, const std::vector<OwnedTensor>& tensors) {
  std::string body, directory;
  auto put16 = [](std::string& s, uint16_t v) { s.append(reinterpret_cast<const char*>(&v), 2); };
  auto put32 = [](std::string& s, uint32_t v) { s.append(reinterpret_cast<const char*>(&v), 4); };
  for (const OwnedTensor& t : tensors) {
    std::string data = to_npy(t), name = t.name + ".npy";
    if (body.size() + data.size() > 0xFFFF0000u || name.size() > 0xFFFF || tensors.size() > 0xFFFF)
      fail(path, "more than an archive without the 64-bit extension can hold; write *.npy");
    auto crc = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
    auto size = static_cast<uint32_t>(data.size()), offset = static_cast<uint32_t>(body.size());
    auto common = [&](std::string& s) {
      put16(s, 20);
      put16(s, 0);
      put16(s, 0);
      put32(s, 0);
      put32(s, crc);
      put32(s, size);
      put32(s, size);
      put16(s, static_cast<uint16_t>(name.size()));
      put16(s, 0);
    };
    put32(body, 0x04034b50);
    common(body);
    body += name + data;
    put32(directory, 0x02014b50);
    put16(directory, 20);
    common(directory);
    put16(directory, 0);
    put16(directory, 0);
    put16(directory, 0);
    put32(directory, 0);
    put32(directory, offset);
    directory += name;
  }
  std::string tail;
  put32(tail, 0x06054b50);
  put32(tail, 0);
  put16(tail, static_cast<uint16_t>(tensors.size()));
  put16(tail, static_cast<uint16_t>(tensors.size()));
  put32(tail, static_cast<uint32_t>(directory.size()));
  put32(tail, static_cast<uint32_t>(body.size()));
  put16(tail, 0);
  return body + directory + tail;
}

} // namespace

std::string refuses_output(const std::string& path) {
  namespace fs = std::filesystem;
  if (!ends_with(path, ".npz") && !ends_with(path, ".npy"))
    return path + ": expected a name ending in .npz (all outputs) or .npy (a single one)";
  std::error_code ignored;
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, ignored))
    return fmt::format("{}: there is no folder {}", path, folder.string());
  if (fs::is_directory(path, ignored)) return path + ": is a folder";
  if (access(folder.c_str(), W_OK) != 0) return fmt::format("{}: the folder cannot be written to", path);
  return {};
}

void write_tensors(const std::string& path, const std::vector<OwnedTensor>& tensors) {
  if (std::string why = refuses_output(path); !why.empty()) throw UsageError(why);
  if (ends_with(path, ".npz")) return write_file(path, to_npz(path, tensors));
  if (tensors.size() != 1)
    fail(path, fmt::format("a .npy file holds one array, not {}; write *.npz", tensors.size()));
  write_file(path, to_npy(tensors[0]));
}

std::string read_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(path, "no such file");
  if (!std::filesystem::is_regular_file(path, error)) fail(path, "not a file");
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  if (in.peek() != std::ifstream::traits_type::eof()) s << in.rdbuf();
  if (!in && !in.eof()) fail(path, "cannot be read");
  return s.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::string beside = fmt::format("{}.{}.tmp", path, getpid());
  std::ofstream out(beside, std::ios::binary);
  out << bytes;
  out.close();
  if (!out || std::rename(beside.c_str(), path.c_str()) != 0) {
    std::remove(beside.c_str());
    fail(path, "cannot be written");
  }
}

Image read_png(const std::string& path, int channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&image, path.c_str())) fail(path, image.message);
  image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Image out{static_cast<int>(image.width), static_cast<int>(image.height), channels, {}};
  out.pixels.resize(PNG_IMAGE_SIZE(image));
  if (!png_image_finish_read(&image, nullptr, out.pixels.data(), 0, nullptr)) fail(path, image.message);
  return out;
}

namespace {

bool fixed(const std::string& dim) {
  return !dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos;
}

/// A picture as the input [..., C, H, W] wants it.
OwnedTensor read_picture(const std::string& path, const TensorInfo& wanted) {
  size_t rank = wanted.dims.size();
  bool scaled = wanted.type == static_cast<int32_t>(DType::f32);
  if (!scaled && wanted.type != static_cast<int32_t>(DType::u8))
    fail(path, fmt::format("a picture can be an input of float32 or uint8, '{}' is {}; give a .npy file",
                           wanted.name, wanted.type_name));
  if (rank < 2)
    fail(path,
         fmt::format("a picture needs an input [..., height, width], '{}' has rank {}", wanted.name, rank));
  for (size_t d = 0; d + 3 < rank; ++d)
    if (fixed(wanted.dims[d]) && wanted.dims[d] != "1")
      fail(path, fmt::format("one picture is not enough for input '{}', whose dimension {} is {}",
                             wanted.name, d, wanted.dims[d]));
  const std::string channels_text = rank >= 3 ? wanted.dims[rank - 3] : "1";
  if (fixed(channels_text) && channels_text != "1" && channels_text != "3")
    fail(path,
         fmt::format("a picture has 1 or 3 channels, input '{}' wants {} (channels before height and width)",
                     wanted.name, channels_text));
  int channels = channels_text == "3" ? 3 : 1;
  Image image = read_png(path, channels);
  OwnedTensor t;
  t.type = wanted.type;
  t.dims.assign(rank, 1);
  if (rank >= 3) t.dims[rank - 3] = channels;
  t.dims[rank - 2] = image.height;
  t.dims[rank - 1] = image.width;
  size_t pixels = size_t{1} * image.width * image.height;
  t.bytes.resize(pixels * channels * (scaled ? 4 : 1));
  for (int c = 0; c < channels; ++c)
    for (size_t i = 0; i < pixels; ++i) {
      unsigned char v = image.pixels[i * channels + c];
      if (scaled)
        reinterpret_cast<float*>(t.bytes.data())[c * pixels + i] = static_cast<float>(v) / 255.0f;
      else
        t.bytes[c * pixels + i] = std::byte{v};
    }
  return t;
}

OwnedTensor read_any(const std::string& spec, const TensorInfo& wanted) {
  size_t colon = spec.rfind(".npz:");
  std::string path = colon == std::string::npos ? spec : spec.substr(0, colon + 4);
  if (ends_with(path, ".npy")) return parse_npy(path, read_file(path));
  if (ends_with(path, ".pb")) return parse_tensor_proto(path, read_file(path));
  if (ends_with(path, ".npz")) {
    std::string key = colon == std::string::npos ? "" : spec.substr(colon + 5), names;
    std::vector<OwnedTensor> all = read_npz(path);
    for (OwnedTensor& t : all) {
      if (key.empty() ? (all.size() == 1 || t.name == wanted.name) : t.name == key) return std::move(t);
      names += (names.empty() ? "" : ", ") + t.name;
    }
    fail(path, fmt::format("has no array '{}', but {}", key.empty() ? wanted.name : key,
                           names.empty() ? "none" : names));
  }
  if (ends_with(path, ".png")) {
    read_file(path); // says when it is missing
    return read_picture(path, wanted);
  }
  fail(spec, "unknown kind of file: expected .npy, .npz, .npz:key, .pb or .png");
}

} // namespace

OwnedTensor read_tensor(const std::string& spec, const TensorInfo& wanted) {
  OwnedTensor t = read_any(spec, wanted);
  // What numpy has no type for is kept as the bits of the element.
  bool in_numpy = wanted.type == OwnedTensor::kString ||
                  std::any_of(std::begin(kNumpyTypes), std::end(kNumpyTypes), [&](const NumpyType& n) {
                    return static_cast<int32_t>(n.type) == wanted.type;
                  });
  auto stored = static_cast<DType>(t.type);
  if (wanted.type != 0 && !in_numpy && (stored == DType::u8 || stored == DType::u16) &&
      element_size(t.type) == element_size(wanted.type))
    t.type = wanted.type;
  return t;
}

} // namespace tbx::tools
