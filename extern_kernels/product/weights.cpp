#include "extern_kernels/product/weights.h"

#include "base/pages.h"
#include "base/weight_memory.h"
#include "extern_kernels/panel_copy.h"
#include "extern_kernels/stack.h"

namespace tbx::extern_kernels::product {

Weights::Weights(const OperandInfo& b) : tiles_(tiles()), last_(tiles_.usual) {
  const Tensor& t = *b.constant;
  const TensorRef ref{nullptr, t.dtype, b.sizes, b.strides};
  const Stack m{ref};
  matrices_ = m.count();
  depth_ = m.rows();
  columns_ = m.columns();
  const int64_t usual = tiles_.usual.columns, rest = columns_ % usual;
  panels_ = (columns_ + usual - 1) / usual;
  if (panels_ > 1 && rest > 0 && usual + rest <= tiles_.wide.columns) {
    --panels_;
    last_ = tiles_.wide;
  }
  memory_ = allocate_weights(bytes());
  const int64_t first = (panels_ - 1) * usual; // column of the last panel
  for (int64_t i = 0; i < matrices_; ++i) {
    float* to = data() + i * matrix_size();
    // The pages that the last panel shares with the others are read twice, but not kept for it.
    auto pack = [&](int64_t column, int64_t columns, int64_t width) {
      const int64_t at = m.at(i) + column * m.column_step();
      auto drop = [&](const void* begin, int64_t size) { drop_pages(t, begin, size); };
      if (is_half(t.dtype))
        copy_panels(t.dtype, reinterpret_cast<const uint16_t*>(t.data) + at, to + column * depth_, width,
                    depth_, columns, m.row_step(), m.column_step(), drop);
      else
        copy_panels(reinterpret_cast<const float*>(t.data) + at, to + column * depth_, width, depth_, columns,
                    m.row_step(), m.column_step(), drop);
    };
    const bool is_one = last_.columns == usual;
    pack(0, is_one ? columns_ : first, usual);
    if (!is_one) pack(first, columns_ - first, last_.columns);
  }
  drop_pages(t);
}

} // namespace tbx::extern_kernels::product
