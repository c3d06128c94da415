#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace tbx {
namespace {

uint32_t character(std::string_view bytes) {
  if (bytes.size() == 1) return static_cast<unsigned char>(bytes[0]);
  uint32_t c = static_cast<unsigned char>(bytes[0]) & (0x7Fu >> bytes.size());
  for (char next : bytes.substr(1)) c = c << 6 | (static_cast<unsigned char>(next) & 0x3F);
  return c;
}

bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }
/// Marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm, and its line separators.
bool turns_writing(uint32_t c) {
  return c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

} // namespace

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t n = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
  if (n < 2 || text.size() < n) return n == 1;
  for (char next : text.substr(1, n - 1))
    if ((static_cast<unsigned char>(next) & 0xC0) != 0x80) return 0;
  const uint32_t c = character(text.substr(0, n));
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xD800 && c < 0xE000;
  return c < kLeast[n] || c > 0x10FFFF || surrogate ? 0 : n;
}

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    const uint32_t c = n ? character(text.substr(0, n)) : static_cast<unsigned char>(text[0]);
    const bool stays = lines == Lines::kept && (c == '\n' || c == '\t');
    if (n == 0 || (is_control(c) && !stays))
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
    else if (turns_writing(c))
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    else
      out += text.substr(0, n);
    text.remove_prefix(n ? n : 1);
  }
  return out;
}

} // namespace tbx
