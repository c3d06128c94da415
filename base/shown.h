// Names of strangers inside of messages.
#pragma once

#include <string>
#include <string_view>

namespace tbx {

/// 'name' with control characters, quotes and backslashes escaped, cut after 120 bytes: a model can name a
/// node as it likes, and a message or dump stays one readable line.
inline std::string shown(std::string_view name) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (char c : name.substr(0, 120)) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  if (name.size() > 120) out += "...";
  return out + "'";
}

} // namespace tbx
