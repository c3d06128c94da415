// BMP: uncompressed, 1 to 32 bits per pixel, palettes and bit masks; run lengths of 4 and 8 bits.
#include <array>
#include <bit>

#include "extern_kernels/image/image.h"

namespace tbx::extern_kernels::image {
namespace {

/// Little-endian numbers with bounds checks.
class Reader {
public:
  explicit Reader(Bytes data) : data_(data) {}
  uint32_t u8(size_t at) const {
    TBX_MODEL(at < data_.size(), "the BMP image is cut short");
    return data_[at];
  }
  uint32_t u16(size_t at) const { return u8(at) | u8(at + 1) << 8; }
  uint32_t u32(size_t at) const { return u16(at) | u16(at + 2) << 16; }

private:
  Bytes data_;
};

/// The bits of a mask as 8 bits.
uint8_t channel(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  uint32_t shift = static_cast<uint32_t>(std::countr_zero(mask)), most = mask >> shift;
  return static_cast<uint8_t>(((pixel & mask) >> shift) * uint64_t{255} / most);
}

struct Header {
  size_t pixels, palette, entry = 4;
  int64_t width, height;
  bool from_top;
  uint32_t bits, compression = 0, colors = 0;
  std::array<uint32_t, 3> masks{};
};

Header read_header(const Reader& r) {
  Header h;
  h.pixels = r.u32(10);
  uint32_t size = r.u32(14);
  TBX_MODEL(size == 12 || (size >= 40 && size <= 256), "the BMP image has a header of {} bytes", size);
  if (size == 12) {
    h.width = r.u16(18);
    h.height = r.u16(20);
    h.bits = r.u16(24);
    h.entry = 3;
    h.from_top = false;
  } else {
    h.width = static_cast<int32_t>(r.u32(18));
    int64_t height = static_cast<int32_t>(r.u32(22));
    h.from_top = height < 0;
    h.height = height < 0 ? -height : height;
    h.bits = r.u16(28);
    h.compression = r.u32(30);
    h.colors = r.u32(46);
  }
  h.palette = 14 + size_t{size};
  if (h.bits == 16) h.masks = {0x7c00, 0x03e0, 0x001f};
  if (h.bits == 24 || h.bits == 32) h.masks = {0xff0000, 0xff00, 0xff};
  if (h.compression == 3 || h.compression == 6) {
    TBX_MODEL(h.bits == 16 || h.bits == 32, "BMP bit masks for {} bits per pixel", h.bits);
    for (size_t c = 0; c < 3; ++c) h.masks[c] = r.u32(54 + 4 * c);
    if (size == 40) h.palette += h.compression == 6 ? 16 : 12;
  }
  TBX_MODEL(h.bits == 1 || h.bits == 4 || h.bits == 8 || h.bits == 16 || h.bits == 24 || h.bits == 32,
            "a BMP image of {} bits per pixel", h.bits);
  if (h.bits <= 8 && (h.colors == 0 || h.colors > (1u << h.bits))) h.colors = 1u << h.bits;
  return h;
}

class Decoder {
public:
  explicit Decoder(Bytes data) : r_(data), h_(read_header(r_)) {}

  Image run() {
    image_.resize(h_.width, h_.height);
    if (h_.compression == 1 || h_.compression == 2) {
      TBX_MODEL(h_.bits == (h_.compression == 1 ? 8u : 4u), "BMP run lengths for {} bits per pixel", h_.bits);
      run_lengths();
      return std::move(image_);
    }
    if (h_.compression != 0 && h_.compression != 3 && h_.compression != 6)
      throw_unsupported("BMP images with compression {}", h_.compression);
    size_t stride = (static_cast<size_t>(h_.width) * h_.bits + 31) / 32 * 4;
    for (int64_t y = 0; y < h_.height; ++y)
      for (int64_t x = 0; x < h_.width; ++x) {
        size_t line = h_.pixels + static_cast<size_t>(y) * stride, bit = static_cast<size_t>(x) * h_.bits;
        if (h_.bits <= 8) {
          uint32_t value = r_.u8(line + bit / 8) >> (8 - h_.bits - bit % 8) & ((1u << h_.bits) - 1);
          indexed(x, y, value);
          continue;
        }
        uint32_t p = 0;
        for (uint32_t k = 0; k < h_.bits / 8; ++k) p |= r_.u8(line + bit / 8 + k) << 8 * k;
        for (size_t c = 0; c < 3; ++c) at(x, y)[c] = channel(p, h_.masks[c]);
      }
    return std::move(image_);
  }

private:
  uint8_t* at(int64_t x, int64_t y) { return image_.row(h_.from_top ? y : h_.height - 1 - y) + x * 3; }

  void indexed(int64_t x, int64_t y, uint32_t index) {
    if (index >= h_.colors || x >= h_.width || y >= h_.height) return;
    for (size_t c = 0; c < 3; ++c)
      at(x, y)[c] = static_cast<uint8_t>(r_.u8(h_.palette + h_.entry * index + 2 - c));
  }

  /// Pairs of count and value; count 0 escapes: end of line, end, a move, or `value` plain pixels.
  void run_lengths() {
    bool nibbles = h_.bits == 4;
    int64_t x = 0, y = 0;
    for (size_t p = h_.pixels; y < h_.height;) {
      uint32_t count = r_.u8(p), value = r_.u8(p + 1);
      p += 2;
      if (count > 0) {
        for (uint32_t k = 0; k < count; ++k)
          indexed(x++, y, nibbles ? (k % 2 ? value & 15 : value >> 4) : value);
      } else if (value == 0) {
        x = 0;
        ++y;
      } else if (value == 1) {
        return;
      } else if (value == 2) {
        x += r_.u8(p);
        y += r_.u8(p + 1);
        p += 2;
      } else {
        for (uint32_t k = 0; k < value; ++k) {
          uint32_t byte = r_.u8(p + (nibbles ? k / 2 : k));
          indexed(x++, y, nibbles ? (k % 2 ? byte & 15 : byte >> 4) : byte);
        }
        size_t bytes = nibbles ? (value + 1) / 2 : value;
        p += bytes + bytes % 2;
      }
    }
  }

  Reader r_;
  Header h_;
  Image image_;
};

} // namespace

Image decode_bmp(Bytes data) { return Decoder(data).run(); }

} // namespace tbx::extern_kernels::image
