#include "tools/member_names.h"

#include <fmt/format.h>

#include <cctype>

#include "base/printable.h"

namespace tbx::tools {
namespace {

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Whether "%2F" begins at `i`: capital letters only, so that few names need an escape for it.
bool is_escape(const std::string& s, size_t i) {
  return s[i] == '%' && i + 2 < s.size() && hex(s[i + 1]) >= 0 && hex(s[i + 2]) >= 0;
}

/// Whether the part of the path that `i` is in consists of dots.
bool in_dots(const std::string& s, size_t i) {
  size_t begin = s.find_last_of("/\\", i), end = s.find_first_of("/\\", i);
  begin = begin == std::string::npos ? 0 : begin + 1;
  end = end == std::string::npos ? s.size() : end;
  return s.find_first_not_of('.', begin) >= end;
}

} // namespace

std::string member_name(const std::string& tensor) {
  std::string out;
  for (size_t i = 0; i < tensor.size();) {
    const size_t n = utf8_length(std::string_view(tensor).substr(i));
    const char c = tensor[i];
    const bool drive = c == ':' && i == 1 && std::isalpha(static_cast<unsigned char>(tensor[0]));
    const bool escaped = n == 0 || (n == 1 && std::iscntrl(static_cast<unsigned char>(c))) || c == '\\' ||
                         (c == '/' && (i == 0 || tensor[i - 1] == '/')) || (c == '.' && in_dots(tensor, i)) ||
                         is_escape(tensor, i) || drive;
    if (escaped)
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      out.append(tensor, i, n);
    i += escaped ? 1 : n;
  }
  return out;
}

std::string tensor_name(const std::string& member) {
  std::string out;
  for (size_t i = 0; i < member.size(); ++i) {
    if (is_escape(member, i)) {
      out += static_cast<char>(hex(member[i + 1]) * 16 + hex(member[i + 2]));
      i += 2;
    } else {
      out += member[i];
    }
  }
  return out;
}

} // namespace tbx::tools
