#include "extern_kernels/product/weights.h"

#include "base/memory.h"
#include "base/pages.h"
#include "extern_kernels/panel_copy.h"
#include "extern_kernels/stack.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels::product {

Weights::Weights(const OperandInfo& b) : tile_(product::tile()) {
  const std::shared_ptr<const Tensor> t = widened(b.constant);
  const TensorRef ref{nullptr, t->dtype, b.sizes, b.strides};
  const Stack m{ref};
  matrices_ = m.count();
  depth_ = m.rows();
  columns_ = m.columns();
  memory_ = allocate_aligned(bytes());
  for (int64_t i = 0; i < matrices_; ++i)
    copy_panels(reinterpret_cast<const float*>(t->data) + m.at(i), data() + i * matrix_size(), tile_.columns,
                depth_, columns_, m.row_step(), m.column_step(),
                [&](const void* begin, int64_t bytes) { drop_pages(*t, begin, bytes); });
  drop_pages(*b.constant);
}

} // namespace tbx::extern_kernels::product
