#include "extern_kernels/bytes/product.h"

#include <tbb/task_arena.h>

#include <algorithm>

#include "base/task_work.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/fit.h"
#include "extern_kernels/stack.h"

namespace tbx::extern_kernels::bytes {
namespace {

/// A block of rows and a stretch of the panels.
class Blocks {
public:
  explicit Blocks(const Product& p)
      : p_(p), epilogue_(*p.post_ops, p.result, p.operands),
        outer_(known_numel(std::span(p.sizes).first(p.outer))),
        rows_(known_numel(std::span(p.sizes).subspan(p.outer))), panels_(panels_of(p.columns)) {
    // Of even lengths: a last block of few rows would keep the threads waiting.
    const int64_t least = std::max<int64_t>(1, (rows_ + kBlockRows - 1) / kBlockRows);
    block_ = ((rows_ + least - 1) / least + kRows - 1) / kRows * kRows;
    blocks_ = (rows_ + block_ - 1) / block_;
    const int64_t wanted = kTaskWork.tasks_of_thread * tbb::this_task_arena::max_concurrency(),
                  there = outer_ * blocks_;
    if (there > 0 && there < wanted) cuts_ = std::clamp<int64_t>((wanted + there - 1) / there, 1, panels_);
  }

  int64_t count() const { return outer_ * blocks_ * cuts_; }
  double work() const {
    return static_cast<double>(outer_) * rows_ * p_.columns * (2 * p_.terms.count * p_.terms.pairs + 8);
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
    const int64_t size = panel_bytes(p_.terms);
    const int8_t* panels = p_.panels + place_of(outer, std::span(p_.sizes).first(p_.outer), p_.panel_steps);
    std::vector<const int64_t*> rows(walks);
    for (int64_t panel = panels_ * cut / cuts_; panel < panels_ * (cut + 1) / cuts_; ++panel)
      for (int64_t r = 0; r < end - first; r += kRows) {
        const int count = static_cast<int>(std::min<int64_t>(kRows, end - first - r));
        const int16_t* from[kRows];
        for (int k = 0; k < count; ++k) from[k] = p_.rows + begins[r + k];
        alignas(64) int32_t sums[kRows * kPanel];
        multiply(from, count, p_.terms, panels + panel * size, p_.unsigned_weights, sums);
        if (p_.weight_zero != 0) take_off_zeros(begins + r, count, sums);
        for (size_t w = 0; w < walks; ++w) rows[w] = places.data() + w * kBlockRows + r;
        const int64_t column = panel * kPanel;
        epilogue_.finish(sums, count, column,
                         static_cast<int>(std::min<int64_t>(kPanel, p_.columns - column)), rows.data());
      }
  }

private:
  void take_off_zeros(const int64_t* begins, int count, int32_t* sums) const {
    for (int k = 0; k < count; ++k) {
      const uint32_t off = static_cast<uint32_t>(p_.row_totals[begins[k] / p_.row_length]) *
                           static_cast<uint32_t>(p_.weight_zero);
      for (int j = 0; j < kPanel; ++j) {
        int32_t& sum = sums[k * kPanel + j];
        sum = static_cast<int32_t>(static_cast<uint32_t>(sum) - off);
      }
    }
  }

  const Product& p_;
  Epilogue epilogue_;
  int64_t outer_, rows_, panels_, block_ = 1, blocks_ = 1, cuts_ = 1;
};

} // namespace

void run(const Product& product) {
  const Blocks blocks(product);
  direct::in_pieces(blocks.count(), blocks.work(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) blocks.run(i);
  });
}

} // namespace tbx::extern_kernels::bytes
