// A keyed hash: who lacks the key can neither make the hash of other bytes nor bytes for a hash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tbx {

using HashKey = std::array<std::uint8_t, 16>;
using HashTag = std::array<std::uint8_t, 16>;

/// SipHash-2-4 with 128 bits of result (Aumasson and Bernstein, 2012).
HashTag keyed_hash(const HashKey& key, std::span<const std::byte> bytes);

} // namespace tbx
