// com.microsoft Inverse, of matrices.
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Inverses of [..., n, n].
Values inverse(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 2 && is_float(x.dtype()), "X is {} of rank {}, expected matrices of floats",
            name_of(x.dtype()), x.rank());
  ctx.program.add_check(x.sizes()[x.rank() - 1] - x.sizes()[x.rank() - 2], true,
                        "Inverse: the matrices are not square");
  return host_call(ctx, {{x.dtype(), x.sizes()}}, {});
}

} // namespace

void register_inverse(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("Inverse", since(1), inverse, domain);
  r.type_from(0, {"Inverse"}, domain);
}

} // namespace tbx::lowering
