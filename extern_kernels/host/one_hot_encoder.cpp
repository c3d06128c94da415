// OneHotEncoder that rejects values without a category (`zeros` 0); otherwise it is a loop nest.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host_attribute.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {

/// x [...] -> f32 [..., categories]; ModelError for a value that is no category.
void run_one_hot_encoder(const HostCall& call) {
  const auto& categories = attribute<std::vector<int64_t>>(call.problem, "categories");
  std::unordered_map<int64_t, size_t> column;
  for (size_t i = 0; i < categories.size(); ++i) column[categories[i]] = i;
  auto values = to_dense<double>(call.in(0)); // for the message; ints come from the exact read below
  auto* out = static_cast<float*>(call.out(0).data);
  std::fill(out, out + values.size() * categories.size(), 0.f);
  with_storage(call.in(0).dtype, [&]<class S>(S) {
    const S* x = static_cast<const S*>(call.in(0).data);
    for (size_t i = 0; i < values.size(); ++i) {
      bool inside = values[i] >= -9.3e18 && values[i] <= 9.3e18;
      auto it = inside ? column.find(static_cast<int64_t>(x[i])) : column.end();
      TBX_MODEL(it != column.end(), "OneHotEncoder: {} is none of the {} categories", values[i],
                categories.size());
      out[i * categories.size() + it->second] = 1;
    }
  });
}

} // namespace tbx::extern_kernels
