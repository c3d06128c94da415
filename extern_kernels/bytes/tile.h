// The innermost loops of exact products of 8-bit integers: what may saturate in 16 bits, as products of bytes
// do on CPUs without VNNI, is multiplied otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/rounding.h"

namespace tbx::extern_kernels::bytes {

/// Columns of a panel of packed weights.
inline constexpr int kPanel = 16;
/// Rows of a tile at most: its sums, the weights and one group of terms fill the registers.
inline constexpr int kRows = 6;
/// Groups of convolutions with fewer columns leave most of a panel empty.
inline constexpr int64_t kLeastGroup = 8;

/// How rows and weights lie: terms that one instruction multiplies and adds make a group of 32 bits of a row.
enum class Form : uint8_t {
  pairs, ///< numbers of 16 bits, less their zero point, times bytes that are widened (vpmaddwd)
  quads, ///< bytes from 0 on, with their zero point, times signed bytes (vpdpbusd)
  /// The same bytes. Products of neighbours are added in 16 bits (vpmaddubsw) where the weights leave room
  /// for bytes as large as those of the rows; what is in other groups is widened.
  bounded_quads,
};

/// Quads where the CPU multiplies them, else bounded ones.
Form best_form();
/// The largest bytes of which two times these weights make a sum that fits into 16 bits.
constexpr int bound_of(int one, int other) {
  const int above = std::max(one, 0) + std::max(other, 0), below = std::min(one, 0) + std::min(other, 0);
  return std::min(
      {above > 0 ? INT16_MAX / above : UINT8_MAX, below < 0 ? INT16_MIN / below : UINT8_MAX, int{UINT8_MAX}});
}

constexpr int64_t group_of(Form form) { return form == Form::pairs ? 2 : 4; }
/// Of a number of a row.
constexpr int64_t number_bytes(Form form) { return form == Form::pairs ? 2 : 1; }

/// Where the terms of a sum lie: `groups` groups, one behind the other, at each of `count` places.
struct Terms {
  const int64_t* places; ///< in numbers from the begin of a row
  int64_t count, groups;
  int64_t all() const { return count * groups; }
};

/// What a panel of bounded quads is, in two halves of eight columns: for each group of a place the largest
/// byte that it may be multiplied with in 16 bits, in whole vectors; and the weights, [place, group, column,
/// term].
struct Bounded {
  const uint8_t* bounds[2];
  const int8_t* weights[2];
  Bounded(const int8_t* panel, const Terms& terms) {
    const int64_t count = bounds_of(terms);
    for (int64_t half = 0; half < 2; ++half) {
      bounds[half] = reinterpret_cast<const uint8_t*>(panel) + half * count;
      weights[half] = panel + 2 * count + half * kPanel / 2 * 4 * terms.all();
    }
  }
  static int64_t bounds_of(int64_t groups) { return round_up(groups, 32); }
  static int64_t bounds_of(const Terms& terms) { return terms.count * bounds_of(terms.groups); }
};

/// What a tile of sums is made of. Panels are [place, group, column, term of the group] of i8, of pairs also
/// u8; of bounded quads as above.
struct Tile {
  const std::byte* rows[kRows]; ///< those beyond the count are others once more
  int count;
  const int8_t* panel;
  const int32_t* starts;            ///< of the sums, for each column; nullptr: 0
  const uint8_t* largest = nullptr; ///< of bounded quads: what largest_bytes() gives for the rows
};

/// sums[r * kPanel + j] = starts[j] + the sum over all terms of rows[r] times column j; there is room for
/// kRows. Sums wrap. Needs AVX2, and quads without bounds what best_form() looks for.
void multiply(Form form, const Tile& tile, const Terms& terms, bool unsigned_weights, int32_t* sums);

/// to[g] = the largest byte that any of the rows has in group g, as many as Bounded has bounds. Needs AVX2.
void largest_bytes(const std::byte* const* rows, int count, const Terms& terms, uint8_t* to);

/// best_form() gives this one while it lives: for tests.
class PretendedForm {
public:
  explicit PretendedForm(Form form);
  ~PretendedForm();
  PretendedForm(const PretendedForm&) = delete;
  PretendedForm& operator=(const PretendedForm&) = delete;
};

} // namespace tbx::extern_kernels::bytes
