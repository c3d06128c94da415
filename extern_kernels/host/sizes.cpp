// Sizes: binds the elements of an integer vector as sizes of values computed later.
#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"

namespace tbx::extern_kernels {

void run_sizes(const HostCall& call) {
  const TensorRef& x = call.in(0);
  for (int64_t i = 0; i < x.sizes[0]; ++i) {
    int64_t v = static_cast<const int64_t*>(x.data)[i];
    TBX_MODEL(v >= 0 && v < (int64_t{1} << 48), "{} is {}", call.text("what"), v);
    int64_t sizes[] = {v, 0};
    call.make(static_cast<int>(i), sizes);
  }
}

} // namespace tbx::extern_kernels
