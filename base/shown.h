// Names of strangers inside of messages.
#pragma once

#include <string>
#include <string_view>

namespace tbx {

/// 'name' with control characters, quotes and backslashes escaped, cut after 120 bytes: a model can name a
/// node as it likes, and a message or dump stays one readable line.
inline std::string shown(std::string_view name) {
  static constexpr char kHex[] = "0123456789abcdef";
  auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  const std::string_view text = name.substr(0, 120);
  std::string out = "'";
  out.reserve(text.size() + 5);
  for (size_t i = 0; i < text.size();) {
    size_t plain = i; // all of most names
    while (plain < text.size() && text[plain] != '\'' && text[plain] != '\\' && !is_control(text[plain]))
      ++plain;
    out.append(text.substr(i, plain - i));
    if (plain == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[plain]);
    out += '\\';
    if (is_control(byte)) {
      out += 'x';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += text[plain];
    }
    i = plain + 1;
  }
  if (name.size() > 120) out += "...";
  out += '\'';
  return out;
}

} // namespace tbx
