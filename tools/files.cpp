#include "tools/files.h"

#include <fmt/format.h>
#include <png.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/dtype.h"
#include "tools/member_names.h"
#include "tools/npy.h"

namespace tbx::tools {
namespace {

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

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw UsageError(fmt::format("{}: {}", path, why));
}

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
    t.name = tensor_name(ends_with(name, ".npy") ? name.substr(0, name.size() - 4) : name);
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
    std::string data = to_npy(t), name = member_name(t.name) + ".npy";
    if (body.size() + data.size() > 0xFFFF0000u || name.size() > 0xFFFF || tensors.size() > 0xFFFF)
      fail(path, "more than an archive without the 64-bit extension can hold; write *.npy");
    auto crc = static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
    auto size = static_cast<uint32_t>(data.size()), offset = static_cast<uint32_t>(body.size());
    constexpr uint16_t kUtf8 = 0x800; // else names are taken for code page 437
    auto common = [&](std::string& s) {
      put16(s, 20);
      put16(s, kUtf8);
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
  if (!ends_with(path, ".npz") && !ends_with(path, ".npy"))
    return path + ": expected a name ending in .npz (all outputs) or .npy (a single one)";
  return refuses_file(path);
}

std::string refuses_file(const std::string& path, const std::string& model) {
  namespace fs = std::filesystem;
  if (path == "-") return "-: expected the name of a file, since results do not go to stdout (./- is one)";
  std::error_code ignored;
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, ignored))
    return fmt::format("{}: there is no folder {}", path, folder.string());
  if (fs::is_directory(path, ignored)) return path + ": is a folder";
  if (!model.empty() && fs::equivalent(path, model, ignored)) return path + ": is the model itself";
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

namespace {

/// Whether all of it was written; else errno says why.
bool write_bytes(const std::string& path, const std::string& bytes) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.close();
  return static_cast<bool>(out);
}

} // namespace

void write_file(const std::string& path, const std::string& bytes) {
  namespace fs = std::filesystem;
  std::error_code none;
  fs::path to = path;
  if (fs::is_symlink(to, none) && fs::exists(to, none)) to = fs::canonical(to, none);
  const bool replaces = !fs::exists(to, none) || fs::is_regular_file(to, none); // not /dev/stdout, or a pipe
  const std::string beside = replaces ? fmt::format("{}.{}.tmp", to.native(), getpid()) : to.native();
  if (write_bytes(beside, bytes) && (!replaces || std::rename(beside.c_str(), to.c_str()) == 0)) return;
  const int cause = errno;
  if (replaces) std::remove(beside.c_str());
  fail(path, cause ? fmt::format("cannot be written: {}", std::generic_category().message(cause))
                   : "cannot be written");
}

Image read_png(const std::string& path, int channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  auto refuse = [&] { fail(path, fmt::format("cannot be read as PNG: {}", image.message)); };
  if (!png_image_begin_read_from_file(&image, path.c_str())) refuse();
  image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Image out{static_cast<int>(image.width), static_cast<int>(image.height), channels, {}};
  out.pixels.resize(PNG_IMAGE_SIZE(image));
  if (!png_image_finish_read(&image, nullptr, out.pixels.data(), 0, nullptr)) refuse();
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
    fail(path, fmt::format("a picture needs an input [..., height, width], '{}' has {}", wanted.name,
                           wanted.any_rank ? "a rank that the model leaves open; give a .npy file"
                                           : fmt::format("rank {}", rank)));
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

namespace {

/// Integers of 4 and 2 bits, of which a file may hold the low bits only, as tensorbox has them in a byte.
void extend_sign(OwnedTensor& t) {
  auto type = static_cast<DType>(t.type);
  int unused = type == DType::i4 || type == DType::u4 ? 4 : type == DType::i2 || type == DType::u2 ? 6 : 0;
  bool with_sign = type == DType::i4 || type == DType::i2;
  for (std::byte& b : t.bytes) {
    b <<= unused;
    b = with_sign ? static_cast<std::byte>(static_cast<int8_t>(b) >> unused) : b >> unused;
  }
}

} // namespace

OwnedTensor read_tensor(const std::string& spec, const TensorInfo& wanted) {
  OwnedTensor t = read_any(spec, wanted);
  // What numpy has no type for is kept as the bits of the element.
  auto stored = static_cast<DType>(t.type);
  if (wanted.type != 0 && !numpy_has(wanted.type) && (stored == DType::u8 || stored == DType::u16) &&
      element_size(t.type) == element_size(wanted.type)) {
    t.type = wanted.type;
    extend_sign(t); // numpy keeps the low bits only
  }
  return t;
}

} // namespace tbx::tools
