#include "tools/files.h"

#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/dtype.h"

namespace tbx::tools {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error(fmt::format("{}: {}", path, why));
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, "cannot be opened");
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

struct NumpyType {
  const char* descr;
  DType type;
};
constexpr NumpyType kNumpyTypes[] = {{"<f4", DType::f32},     {"<f8", DType::f64}, {"<f2", DType::f16},
                                     {"|b1", DType::boolean}, {"|i1", DType::i8},  {"|u1", DType::u8},
                                     {"<i2", DType::i16},     {"<u2", DType::u16}, {"<i4", DType::i32},
                                     {"<u4", DType::u32},     {"<i8", DType::i64}, {"<u8", DType::u64}};

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
  if (t.type == 0) fail(path, "unsupported element type in " + header);
  size_t open = header.find('(', header.find("'shape'")), close = header.find(')', open);
  if (open == std::string::npos || close == std::string::npos) fail(path, "no shape in the header");
  std::stringstream shape(header.substr(open + 1, close - open - 1));
  for (std::string d; std::getline(shape, d, ',');)
    if (d.find_first_of("0123456789") != std::string::npos) t.dims.push_back(std::stoll(d));
  auto bytes = static_cast<size_t>(t.numel() * element_size(t.type));
  if (s.size() - start < bytes) fail(path, "the data is cut short");
  t.bytes.resize(bytes);
  std::memcpy(t.bytes.data(), s.data() + start, bytes);
  return t;
}

std::string to_npy(const OwnedTensor& t) {
  std::string descr;
  for (const NumpyType& n : kNumpyTypes)
    if (t.type == static_cast<int32_t>(n.type)) descr = n.descr;
  if (descr.empty())
    descr = element_size(t.type) == 2 ? "<u2" : "|u1"; // narrow types numpy lacks: their bits
  std::string shape;
  for (int64_t d : t.dims) shape += fmt::format("{}, ", d);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string s("\x93NUMPY\x01\x00", 8);
  auto length = static_cast<uint16_t>(header.size());
  s.append(reinterpret_cast<const char*>(&length), 2);
  s += header;
  s.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  return s;
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

/// A TensorProto through the wire format: dims (1), data_type (2), raw_data (9), float_data (4), int64_data
/// (7).
OwnedTensor parse_tensor_proto(const std::string& path, const std::string& s) {
  OwnedTensor t;
  t.type = 0;
  size_t p = 0;
  auto varint = [&](size_t& i) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (i >= s.size()) fail(path, "the message is cut short");
      auto b = static_cast<uint8_t>(s[i++]);
      v |= uint64_t{b & 0x7Fu} << shift;
      if (!(b & 0x80)) return v;
    }
    fail(path, "a number is too long");
  };
  while (p < s.size()) {
    uint64_t key = varint(p);
    uint64_t field = key >> 3, wire = key & 7;
    if (wire == 0) {
      uint64_t v = varint(p);
      if (field == 1) t.dims.push_back(static_cast<int64_t>(v));
      if (field == 2) t.type = static_cast<int32_t>(v);
    } else if (wire == 2) {
      uint64_t n = varint(p);
      if (n > s.size() - p) fail(path, "a field is longer than the file");
      const char* data = s.data() + p;
      if (field == 1 || field == 7) {
        for (size_t i = p; i < p + n;) {
          auto v = static_cast<int64_t>(varint(i));
          if (field == 1) {
            t.dims.push_back(v);
          } else {
            const auto* b = reinterpret_cast<const std::byte*>(&v);
            t.bytes.insert(t.bytes.end(), b, b + 8);
          }
        }
      } else if (field == 9 || field == 4) {
        t.bytes.assign(reinterpret_cast<const std::byte*>(data),
                       reinterpret_cast<const std::byte*>(data) + n);
      } else if (field != 8) {
        fail(path, fmt::format("TensorProto field {} is not supported; store raw_data", field));
      }
      p += n;
    } else {
      fail(path, "not a TensorProto");
    }
  }
  if (static_cast<int64_t>(t.bytes.size()) != t.numel() * element_size(t.type))
    fail(path, "the data does not fit the shape");
  return t;
}

bool ends_with(const std::string& s, std::string_view end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

} // namespace

std::vector<OwnedTensor> read_npz(const std::string& path) {
  std::string s = slurp(path);
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

void write_npz(const std::string& path, const std::vector<OwnedTensor>& tensors) {
  std::string body, directory;
  auto put16 = [](std::string& s, uint16_t v) { s.append(reinterpret_cast<const char*>(&v), 2); };
  auto put32 = [](std::string& s, uint32_t v) { s.append(reinterpret_cast<const char*>(&v), 4); };
  for (const OwnedTensor& t : tensors) {
    std::string data = to_npy(t), name = t.name + ".npy";
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
  std::ofstream out(path, std::ios::binary);
  out << body << directory << tail;
  if (!out.flush()) fail(path, "cannot be written");
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

OwnedTensor read_tensor(const std::string& spec, const OwnedTensor& wanted) {
  size_t colon = spec.rfind(".npz:");
  std::string path = colon == std::string::npos ? spec : spec.substr(0, colon + 4);
  if (ends_with(path, ".npy")) return parse_npy(path, slurp(path));
  if (ends_with(path, ".pb")) return parse_tensor_proto(path, slurp(path));
  if (ends_with(path, ".npz")) {
    std::string key = colon == std::string::npos ? "" : spec.substr(colon + 5);
    std::vector<OwnedTensor> all = read_npz(path);
    for (OwnedTensor& t : all)
      if (key.empty() ? (all.size() == 1 || t.name == wanted.name) : t.name == key) return std::move(t);
    fail(path, "has no array '" + (key.empty() ? wanted.name : key) + "'");
  }
  if (ends_with(path, ".png")) {
    size_t rank = wanted.dims.size();
    if (rank < 2) fail(path, "a picture needs an input of rank 2 or more");
    int channels = rank >= 3 && wanted.dims[rank - 3] == 3 ? 3 : 1;
    Image image = read_png(path, channels);
    OwnedTensor t = wanted;
    t.dims[rank - 1] = image.width;
    t.dims[rank - 2] = image.height;
    t.bytes.resize(static_cast<size_t>(t.numel()) * 4);
    auto* out = reinterpret_cast<float*>(t.bytes.data());
    for (int c = 0; c < channels; ++c)
      for (int i = 0; i < image.width * image.height; ++i)
        *out++ = static_cast<float>(image.pixels[i * channels + c]) / 255.0f;
    return t;
  }
  fail(spec, "unknown kind of file: expected .npy, .npz, .pb or .png");
}

} // namespace tbx::tools
