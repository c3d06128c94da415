#include "base/sha1.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/budget.h"

namespace tbx {
namespace {

constexpr size_t kBlock = 64;

/// FIPS 180-4, section 6.1.2.
void add_block(std::array<uint32_t, 5>& h, const std::byte* block) {
  uint32_t w[80];
  for (int t = 0; t < 16; ++t) {
    w[t] = 0;
    for (int i = 0; i < 4; ++i) w[t] = w[t] << 8 | static_cast<uint32_t>(block[4 * t + i]);
  }
  for (int t = 16; t < 80; ++t) w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
  auto rounds = [&](int from, uint32_t k, auto f) {
    for (int t = from; t < from + 20; ++t) {
      const uint32_t next = std::rotl(a, 5) + f() + e + k + w[t];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
  };
  rounds(0, 0x5a827999, [&] { return (b & c) | (~b & d); });
  rounds(20, 0x6ed9eba1, [&] { return b ^ c ^ d; });
  rounds(40, 0x8f1bbcdc, [&] { return (b & c) | (b & d) | (c & d); });
  rounds(60, 0xca62c1d6, [&] { return b ^ c ^ d; });
  const uint32_t sums[] = {a, b, c, d, e};
  for (int i = 0; i < 5; ++i) h[i] += sums[i];
}

} // namespace

std::string sha1_hex(std::span<const std::byte> bytes) {
  std::array<uint32_t, 5> h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  size_t at = 0;
  for (; bytes.size() - at >= kBlock; at += kBlock) {
    check_stop_often();
    add_block(h, bytes.data() + at);
  }
  // The rest, a one bit, zeros, and the number of bits in 64.
  std::byte last[2 * kBlock] = {};
  const size_t rest = bytes.size() - at;
  if (rest > 0) std::memcpy(last, bytes.data() + at, rest);
  last[rest] = std::byte{0x80};
  const size_t size = rest + 9 <= kBlock ? kBlock : 2 * kBlock;
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (int i = 0; i < 8; ++i) last[size - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
  for (size_t block = 0; block < size; block += kBlock) add_block(h, last + block);
  return fmt::format("{:08x}{:08x}{:08x}{:08x}{:08x}", h[0], h[1], h[2], h[3], h[4]);
}

} // namespace tbx
