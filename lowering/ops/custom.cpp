// Operators of a user's library: a host call whose output shapes the library infers.
#include "lowering/ops/custom.h"

#include <algorithm>

#include "extern_kernels/custom_operator.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {

using namespace extern_kernels;

std::vector<LoweredValue> lower_custom(OpContext& ctx) {
  const std::shared_ptr<const CustomNode>& node = ctx.node.custom;
  SymInts unknown; ///< unknown_size(i) stands for the i-th of them
  CustomCall call{node, {}, {}};
  std::vector<std::vector<int64_t>> dims(static_cast<size_t>(ctx.num_inputs()));
  std::vector<CustomInput> inputs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    inputs.emplace_back();
    if (!ctx.has(i)) continue;
    SymInts sizes = ctx.sizes(i);
    for (int d = 0; d < static_cast<int>(sizes.size()); ++d) {
      if (sizes[d].is_constant()) {
        dims[i].push_back(sizes[d].constant());
        continue;
      }
      auto same = std::find_if(unknown.begin(), unknown.end(),
                               [&](SymInt s) { return ir::provably_equal(s, sizes[d]); });
      dims[i].push_back(unknown_size(same - unknown.begin()));
      if (same != unknown.end()) continue;
      unknown.push_back(sizes[d]);
      call.unknown_dims.emplace_back(i, d);
    }
    inputs.back().dtype = ctx.dtype(i);
    inputs.back().dims = dims[i];
    if (auto t = ctx.constant(i); t && t->data) {
      inputs.back().data = t->data;
      constants.push_back(std::move(t));
    }
  }
  call.outputs = node->infer(inputs);
  std::vector<HostOutput> outputs;
  for (const CustomOutput& out : call.outputs) {
    outputs.push_back({out.dtype, {}});
    for (int64_t d : out.dims) {
      size_t k = 0;
      while (d < 0 && k < unknown.size() && unknown_size(static_cast<int64_t>(k)) != d) ++k;
      outputs.back().sizes.push_back(d >= 0               ? SymInt(d)
                                     : k < unknown.size() ? unknown[k]
                                                          : ctx.c.unbacked_symbol("custom"));
    }
  }
  std::vector<std::optional<TensorBox>> boxes(static_cast<size_t>(ctx.num_inputs()));
  for (int i = 0; i < ctx.num_inputs(); ++i)
    if (ctx.has(i)) boxes[static_cast<size_t>(i)] = ctx.in(i);
  return host_call(ctx, boxes, outputs, {}, std::make_shared<const CustomCall>(std::move(call)));
}

} // namespace tbx::lowering
