// How strings of a model appear in messages and dumps: quoted, escaped, of limited length.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tbx::importer {

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

/// How errors name a node: "node 'conv1' (Conv, opset 13)".
inline std::string node_text(std::string_view label, std::string_view domain, std::string_view op_type,
                             std::string_view opset) {
  const std::string op = shown(domain.empty() ? std::string(op_type) : fmt::format("{}.{}", domain, op_type));
  return fmt::format("node {} ({}, opset {})", shown(label), std::string_view(op).substr(1, op.size() - 2),
                     opset);
}

/// The default domain has two spellings.
inline std::string_view canonical_domain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}
/// For people: "" is shown as ai.onnx.
inline std::string_view shown_domain(std::string_view domain) { return domain.empty() ? "ai.onnx" : domain; }

} // namespace tbx::importer
