#include "base/keyed_hash.h"

#include <bit>
#include <cstring>

namespace tbx {
namespace {

uint64_t word(const void* p, size_t bytes = 8) {
  uint64_t w = 0;
  std::memcpy(&w, p, bytes); // little-endian, as all machines we run on
  return w;
}

struct State {
  uint64_t a, b, c, d;
  void rounds(int n) {
    for (int i = 0; i < n; ++i) {
      a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
      c += d, d = std::rotl(d, 16) ^ c;
      a += d, d = std::rotl(d, 21) ^ a;
      c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
    }
  }
  void take(uint64_t w) {
    d ^= w;
    rounds(2);
    a ^= w;
  }
  uint64_t result() {
    rounds(4);
    return a ^ b ^ c ^ d;
  }
};

} // namespace

HashTag keyed_hash(const HashKey& key, std::span<const std::byte> bytes) {
  const uint64_t k0 = word(key.data()), k1 = word(key.data() + 8);
  State s{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261,
          k1 ^ 0x7465646279746573};
  const size_t whole = bytes.size() & ~size_t{7};
  for (size_t i = 0; i < whole; i += 8) s.take(word(bytes.data() + i));
  uint64_t rest = static_cast<uint64_t>(bytes.size()) << 56;
  if (whole < bytes.size()) rest |= word(bytes.data() + whole, bytes.size() - whole);
  s.take(rest);
  s.c ^= 0xee;
  const uint64_t low = s.result();
  s.b ^= 0xdd;
  const uint64_t high = s.result();
  HashTag tag;
  std::memcpy(tag.data(), &low, 8);
  std::memcpy(tag.data() + 8, &high, 8);
  return tag;
}

} // namespace tbx
