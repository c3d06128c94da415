// LabelEncoder between numbers. The forms with strings are a value operator
// (runtime/value_ops/ml_labels.cpp).
#include "extern_kernels/host/label_table.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/ml/ml.h"

namespace tbx::lowering {
namespace {

std::vector<LoweredValue> label_encoder(OpContext& ctx) {
  const extern_kernels::Labels labels = extern_kernels::read_labels(host_attributes(ctx.node));
  if (labels.keys.strings || labels.values.strings)
    ask_for_run("labels that are strings, in a compiled part");
  TBX_MODEL(labels.keys.dtype == ctx.dtype(0), "keys of type {} for an input of type {}",
            name_of(labels.keys.dtype), name_of(ctx.dtype(0)));
  auto shared = [](const Tensor& t) { return std::make_shared<const Tensor>(t); };
  return host_call(ctx, {{labels.values.dtype, ctx.sizes(0)}},
                   {{"keys", shared(labels.keys)},
                    {"values", shared(labels.values)},
                    {"default", shared(labels.otherwise)}});
}

} // namespace

void register_ml_labels(Registry& r) { r.add("LabelEncoder", since(2), label_encoder, kMl); }

} // namespace tbx::lowering
