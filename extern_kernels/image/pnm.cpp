// PNM: bitmaps, grey maps and pixel maps, as text (P1 to P3) or bytes (P4 to P6).
#include "extern_kernels/image/image.h"

namespace tbx::extern_kernels::image {
namespace {

class Reader {
public:
  explicit Reader(Bytes data) : data_(data) {}

  bool ended() const { return at_ >= data_.size(); }
  uint32_t byte() {
    TBX_MODEL(!ended(), "the PNM image is cut short");
    return data_[at_++];
  }
  /// The next decimal number, after white space and comments.
  int64_t number() {
    blank();
    TBX_MODEL(!ended() && is_digit(data_[at_]), "the PNM image has no number at byte {}", at_);
    int64_t n = 0;
    while (!ended() && is_digit(data_[at_])) {
      n = n * 10 + (data_[at_++] - '0');
      TBX_MODEL(n <= INT32_MAX, "the PNM image has a number that is too large");
    }
    return n;
  }
  /// A pixel of a P1 image: they need no space between them.
  int64_t digit() {
    blank();
    uint32_t d = byte();
    TBX_MODEL(d == '0' || d == '1', "the PNM bitmap has a pixel that is not 0 or 1");
    return d - '0';
  }

private:
  static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
  void blank() {
    for (; !ended(); ++at_) {
      uint8_t c = data_[at_];
      if (c == '#')
        while (!ended() && data_[at_] != '\n' && data_[at_] != '\r') ++at_;
      else if (c != ' ' && (c < '\t' || c > '\r'))
        return;
      if (ended()) return;
    }
  }

  Bytes data_;
  size_t at_ = 2;
};

} // namespace

Image decode_pnm(Bytes data) {
  char kind = static_cast<char>(data[1]);
  bool text = kind <= '3', bitmap = kind == '1' || kind == '4', color = kind == '3' || kind == '6';
  Reader r(data);
  int64_t width = r.number(), height = r.number(), most = bitmap ? 1 : r.number();
  TBX_MODEL(most > 0 && most < 65536, "a PNM image with values up to {}", most);
  if (!text) r.byte(); // one blank ends the header
  // Every pixel takes a byte, or a bit, of the input: a short input cannot ask for much memory.
  TBX_MODEL(width > 0 && height <= static_cast<int64_t>(data.size()) * 8 / width,
            "the PNM image is cut short");
  Image image;
  image.resize(width, height);
  auto scaled = [&](int64_t v) {
    TBX_MODEL(v <= most, "a PNM value {} above {}", v, most);
    return static_cast<uint8_t>(most == 255 ? v : (v * 255 + most / 2) / most);
  };
  for (int64_t y = 0; y < height; ++y) {
    uint8_t* out = image.row(y);
    uint32_t bits = 0;
    for (int64_t x = 0; x < width; ++x, out += 3) {
      if (bitmap) {
        if (!text && x % 8 == 0) bits = r.byte();
        bool black = text ? r.digit() != 0 : (bits >> (7 - x % 8) & 1) != 0;
        out[0] = out[1] = out[2] = black ? 0 : 255;
        continue;
      }
      for (int c = 0; c < (color ? 3 : 1); ++c) {
        int64_t v = text ? r.number() : r.byte();
        if (!text && most > 255) v = v << 8 | r.byte();
        out[c] = scaled(v);
      }
      if (!color) out[1] = out[2] = out[0];
    }
  }
  return image;
}

} // namespace tbx::extern_kernels::image
