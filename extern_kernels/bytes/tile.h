// The innermost loops of exact products of 8-bit integers: what may saturate in 16 bits, as products of bytes
// do on CPUs without VNNI, is multiplied otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

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
  /// The same bytes. Where the four terms of a group make two sums of two products that fit into 16 bits
  /// whatever the row is, they are made by vpmaddubsw, and added by vpmaddwd; else the terms are widened.
  sorted_quads,
};

/// Quads where the CPU multiplies them, else sorted ones.
Form best_form();
/// With more groups that are widened than this part, pairs are faster than sorted quads.
inline constexpr double kMostWidened = 0.3;
/// Whether two neighbours of these weights times any two bytes fit into 16 bits.
constexpr bool fits(int one, int other) {
  const int above = (one > 0 ? one : 0) + (other > 0 ? other : 0),
            below = (one < 0 ? one : 0) + (other < 0 ? other : 0);
  return 255 * above <= INT16_MAX && 255 * below >= INT16_MIN;
}

constexpr int64_t group_of(Form form) { return form == Form::pairs ? 2 : 4; }
/// Of a number of a row.
constexpr int64_t number_bytes(Form form) { return form == Form::pairs ? 2 : 1; }

/// Where the terms of a sum lie: `groups` groups, one behind the other, at each of `count` places.
struct Terms {
  const int64_t* places; ///< in numbers from the begin of a row
  int64_t count, groups;
  const int64_t* offsets = nullptr; ///< for sorted quads: where each of all groups lies, in bytes
  int64_t all() const { return count * groups; }
};

/// Which terms of a group are neighbours, and so make sums of two: all ways to pair four.
inline constexpr int kPairings = 3;
inline constexpr int kPairing[kPairings][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2}};

/// What comes before the weights of a panel of sorted quads, whose two halves of eight columns have orders of
/// their own: the groups of each pairing one behind the other, then those that are widened, and the numbers
/// that groups have among all. Weights of a group are in the order of its pairing.
struct Sorted {
  const int32_t* ends; ///< of the groups of each pairing, in each half
  const int32_t* numbers[2];
  const int8_t* weights[2];
  Sorted(const int8_t* panel, int64_t groups)
      : ends(reinterpret_cast<const int32_t*>(panel)), numbers{ends + int64_t{2} * kPairings,
                                                               ends + int64_t{2} * kPairings + groups},
        weights{panel + head_bytes(groups), panel + head_bytes(groups) + int64_t{kPanel} / 2 * 4 * groups} {}
  static int64_t head_bytes(int64_t groups) {
    return (int64_t{2} * kPairings + 2 * groups) * static_cast<int64_t>(sizeof(int32_t));
  }
};

/// What a tile of sums is made of. Panels are [place, group, column, term of the group] of i8, of pairs also
/// u8; of sorted quads as above, [half, group, column, term].
struct Tile {
  const std::byte* rows[kRows];
  int count;
  const int8_t* panel;
  const int32_t* starts; ///< of the sums, for each column; nullptr: 0
};

/// sums[r * kPanel + j] = starts[j] + the sum over all terms of rows[r] times column j. Sums wrap. Needs
/// AVX2, and quads that are not sorted what best_form() looks for.
void multiply(Form form, const Tile& tile, const Terms& terms, bool unsigned_weights, int32_t* sums);

/// best_form() gives this one while it lives: for tests.
class PretendedForm {
public:
  explicit PretendedForm(Form form);
  ~PretendedForm();
  PretendedForm(const PretendedForm&) = delete;
  PretendedForm& operator=(const PretendedForm&) = delete;
};

} // namespace tbx::extern_kernels::bytes
