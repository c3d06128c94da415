// The blocks of keys that SparseAttention looks at, from compressed rows to a table.
#include <algorithm>

#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"

namespace tbx::extern_kernels {

/// Starts of rows [layouts, rows + 1], columns [layouts, most] -> [layouts, rows, rows] of 0 and 1.
void run_block_mask(const HostCall& call) {
  const TensorRef &starts = call.in(0), &columns = call.in(1);
  const int64_t layouts = starts.sizes[0], rows = starts.sizes[1] - 1, most = columns.sizes[1];
  auto* out = static_cast<uint8_t*>(call.out(0).data);
  std::fill_n(out, layouts * rows * rows, uint8_t{0});
  for (int64_t l = 0; l < layouts; ++l) {
    const auto* start = static_cast<const int32_t*>(starts.data) + l * (rows + 1);
    const auto* column = static_cast<const int32_t*>(columns.data) + l * most;
    for (int64_t r = 0; r < rows; ++r) {
      TBX_MODEL(start[r] >= 0 && start[r] <= start[r + 1] && start[r + 1] <= most,
                "SparseAttention: row {} of block_row_indices is from {} to {} of {} blocks", r, start[r],
                start[r + 1], most);
      for (int64_t i = start[r]; i < start[r + 1]; ++i) {
        TBX_MODEL(column[i] >= 0 && column[i] < rows,
                  "SparseAttention: block_col_indices holds {} for {} blocks", column[i], rows);
        out[(l * rows + r) * rows + column[i]] = 1;
      }
    }
  }
}

} // namespace tbx::extern_kernels
