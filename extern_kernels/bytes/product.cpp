#include "extern_kernels/bytes/product.h"

#include <tbb/task_arena.h>

#include <algorithm>
#include <cstring>

#include "base/caches.h"
#include "base/task_work.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/fit.h"
#include "extern_kernels/scratch.h"
#include "extern_kernels/stack.h"

namespace tbx::extern_kernels::bytes {
namespace {

constexpr int64_t kLine = 64; ///< bytes of a line of the cache

/// The rows of a block as they are multiplied.
struct Numbers {
  const std::byte* rows;
  const int32_t* totals; ///< of the row that begins at number i * length
  int64_t length;
};

/// A block of rows and a stretch of the panels.
class Blocks {
public:
  explicit Blocks(const Product& p)
      : p_(p), terms_(p.terms), epilogue_(*p.post_ops, p.result, p.operands, p.outer),
        outer_(known_numel(std::span(p.sizes).first(p.outer))),
        rows_(known_numel(std::span(p.sizes).subspan(p.outer))), panels_(panels_of(p.columns)) {
    int64_t most = kBlockRows;
    if (makes_numbers()) {
      // A line between them, for powers of two would meet in one set of the cache.
      line_ = ((p.bytes->length + kSlack) * number_bytes(p.form) + kLine - 1) / kLine * kLine + kLine;
      const int64_t fit = host_caches().l2_bytes / 2 / line_;
      most = std::clamp<int64_t>(fit / kRows * kRows, kRows, kBlockRows);
    }
    // Of even lengths: a last block of few rows would keep the threads waiting.
    const int64_t least = std::max<int64_t>(1, (rows_ + most - 1) / most);
    block_ = ((rows_ + least - 1) / least + kRows - 1) / kRows * kRows;
    blocks_ = (rows_ + block_ - 1) / block_;
    const int64_t wanted = kTaskWork.tasks_of_thread * tbb::this_task_arena::max_concurrency(),
                  there = outer_ * blocks_;
    if (there > 0 && there < wanted) cuts_ = std::clamp<int64_t>((wanted + there - 1) / there, 1, panels_);
  }

  int64_t count() const { return outer_ * blocks_ * cuts_; }
  double work() const {
    return static_cast<double>(outer_) * rows_ * p_.columns * (terms_.all() * group_of(p_.form) + 8);
  }

  void run(int64_t i) const {
    const int64_t cut = i % cuts_, block = i / cuts_ % blocks_, outer = i / cuts_ / blocks_;
    const int64_t first = block * block_, end = std::min(rows_, first + block_);
    const size_t walks = 1 + p_.operands.size();
    std::vector<int64_t> places((walks + 1) * kBlockRows);
    const int64_t number = outer * rows_ + first;
    int64_t* begins = places.data() + walks * kBlockRows;
    auto find = [&](std::span<const int64_t> steps, int64_t* to) {
      places_from(number, p_.sizes, steps, {to, static_cast<size_t>(end - first)});
    };
    find(p_.row_steps, begins);
    for (size_t w = 0; w < walks; ++w)
      find(w == 0 ? p_.result.steps : p_.operands[w - 1].steps, places.data() + w * kBlockRows);
    const int64_t bounds = p_.form == Form::bounded_quads ? Bounded::bounds_of(terms_) : 0,
                  all_bounds = ceil_div(end - first, kRows) * bounds;
    const Scratch scratch(all_bounds + (makes_numbers() ? (end - first) * row_bytes() : 0));
    const Numbers numbers =
        numbers_of({begins, static_cast<size_t>(end - first)}, scratch.data() + all_bounds);
    auto* largest = reinterpret_cast<uint8_t*>(scratch.data());
    auto find_rows = [&](int64_t r, Tile& tile) {
      tile.count = static_cast<int>(std::min<int64_t>(kRows, end - first - r));
      for (int k = 0; k < kRows; ++k)
        tile.rows[k] = numbers.rows + begins[r + std::min(k, tile.count - 1)] * number_bytes(p_.form);
      tile.largest = largest + r / kRows * bounds;
    };
    for (int64_t r = 0; bounds > 0 && r < end - first; r += kRows) {
      Tile tile{};
      find_rows(r, tile);
      largest_bytes(tile.rows, tile.count, terms_, largest + r / kRows * bounds);
    }
    const int64_t size = panel_bytes(p_.form, terms_);
    const int8_t* panels = p_.panels + place_of(outer, std::span(p_.sizes).first(p_.outer), p_.panel_steps);
    std::vector<const int64_t*> rows(walks);
    for (int64_t panel = panels_ * cut / cuts_; panel < panels_ * (cut + 1) / cuts_; ++panel) {
      const int8_t* weights = panels + panel * size;
      alignas(64) int32_t starts[kPanel], sums[kRows * kPanel];
      Tile tile{{}, 0, weights + panel_head(p_.form), start_sums(weights, starts)};
      for (int64_t r = 0; r < end - first; r += kRows) {
        find_rows(r, tile);
        multiply(p_.form, tile, terms_, p_.unsigned_weights, sums);
        if (p_.weight_zero != 0) take_off_zeros(numbers, begins + r, tile.count, sums);
        for (size_t w = 0; w < walks; ++w) rows[w] = places.data() + w * kBlockRows + r;
        const int64_t column = panel * kPanel;
        epilogue_.finish(sums, tile.count, column,
                         static_cast<int>(std::min<int64_t>(kPanel, p_.columns - column)), rows.data());
      }
    }
  }

private:
  /// Bytes that are numbers as they lie, in whole groups, of which nobody wants the sums, are not copied.
  bool makes_numbers() const {
    if (!p_.bytes) return false;
    return p_.form == Form::pairs || p_.bytes->type != DType::u8 ||
           p_.bytes->length % group_of(p_.form) != 0 || p_.weight_zero != 0;
  }

  /// What sums begin with, for what zero points add to them; nullptr: nothing.
  const int32_t* start_sums(const int8_t* panel, int32_t* starts) const {
    if (p_.row_zero == 0) return nullptr;
    for (int j = 0; j < kPanel; ++j) {
      uint32_t total;
      std::memcpy(&total, panel + j * sizeof total, sizeof total);
      starts[j] = static_cast<int32_t>(0 - static_cast<uint32_t>(p_.row_zero) * total);
    }
    return starts;
  }

  /// What a row takes of the task's memory, with its sum.
  int64_t row_bytes() const { return line_ + static_cast<int64_t>(sizeof(int32_t)); }

  Numbers numbers_of(std::span<int64_t> begins, std::byte* memory) const {
    if (makes_numbers())
      return p_.form == Form::pairs ? make_numbers<int16_t>(begins, memory)
                                    : make_numbers<uint8_t>(begins, memory);
    return {static_cast<const std::byte*>(p_.bytes ? p_.bytes->data : p_.rows), p_.row_totals, p_.row_length};
  }

  /// `begins`: where they lie as bytes, and then where their numbers do.
  template <class N> Numbers make_numbers(std::span<int64_t> begins, std::byte* memory) const {
    const ByteRows& from = *p_.bytes;
    const int64_t length = line_ / static_cast<int64_t>(sizeof(N));
    auto* rows = reinterpret_cast<N*>(memory);
    auto* totals = reinterpret_cast<int32_t*>(memory + static_cast<int64_t>(begins.size()) * line_);
    N* to = rows;
    for (size_t r = 0; r < begins.size(); ++r, to += length) {
      const auto* at = static_cast<const int8_t*>(from.data) + begins[r];
      totals[r] = to_numbers(at, from.type, 1, from.length, from.zero, to);
      std::fill_n(to + from.length, kSlack, N{0});
      begins[r] = to - rows;
    }
    return {memory, totals, length};
  }

  void take_off_zeros(const Numbers& numbers, const int64_t* begins, int count, int32_t* sums) const {
    for (int k = 0; k < count; ++k) {
      const uint32_t off = static_cast<uint32_t>(numbers.totals[begins[k] / numbers.length]) *
                           static_cast<uint32_t>(p_.weight_zero);
      for (int j = 0; j < kPanel; ++j) {
        int32_t& sum = sums[k * kPanel + j];
        sum = static_cast<int32_t>(static_cast<uint32_t>(sum) - off);
      }
    }
  }

  const Product& p_;
  const Terms& terms_;
  Epilogue epilogue_;
  int64_t outer_, rows_, panels_, block_ = 1, blocks_ = 1, cuts_ = 1;
  int64_t line_ = 0; ///< bytes from one row whose numbers are made to the next
};

} // namespace

void run(const Product& product) {
  const Blocks blocks(product);
  direct::in_pieces(blocks.count(), blocks.work(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) blocks.run(i);
  });
}

} // namespace tbx::extern_kernels::bytes
