// com.microsoft operators that search in sequences of tokens, computed by host kernels.
#include <algorithm>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// input_ids [batch, length], scores [batch, vocabulary] -> scores with -inf at tokens that would repeat an
/// n-gram.
Values ngram_repeat_block(OpContext& ctx) {
  TBX_MODEL(ctx.rank(0) == 2 && ctx.rank(1) == 2, "input_ids and scores have ranks {} and {}, expected 2",
            ctx.rank(0), ctx.rank(1));
  TBX_MODEL(ctx.dtype(0) == DType::i64 && ctx.dtype(1) == DType::f32,
            "input_ids and scores are of types {} and {}, expected int64 and float", name_of(ctx.dtype(0)),
            name_of(ctx.dtype(1)));
  int64_t n = ctx.required_int("ngram_size");
  TBX_MODEL(n > 0, "ngram_size is {}", n);
  ctx.program.add_check(ctx.sizes(0)[0] - ctx.sizes(1)[0], true,
                        "NGramRepeatBlock: input_ids and scores differ in their batch");
  return host_call(ctx, {{DType::f32, ctx.sizes(1)}}, {{"ngram_size", n}});
}

/// Vectors of source tokens, current tokens and predicted tokens -> tokens, where their suffix lies in the
/// source.
Values bifurcation_detector(OpContext& ctx) {
  for (int i : {0, 1, 2, 3})
    if (i < 3 || ctx.has(i))
      TBX_MODEL(ctx.dtype(i) == DType::i64 && ctx.rank(i) == (i == 2 ? ctx.rank(2) : 1),
                "input {} is {} of rank {}, expected a vector of int64", i, name_of(ctx.dtype(i)),
                ctx.rank(i));
  ctx.program.add_check(ir::product(ctx.sizes(2)) - SymInt(1), true,
                        "BifurcationDetector: prev_suffix_match_idx is no single value");
  int64_t least = ctx.attr_int("min_ngram_size", 1), most = ctx.attr_int("max_ngram_size", 3);
  TBX_MODEL(least > 0 && most >= least, "n-grams of {} to {} tokens", least, most);
  SymInt n = ctx.c.unbacked_symbol("tokens");
  return host_call(ctx, {{DType::i64, {n}}, {DType::i64, ctx.sizes(2)}},
                   {{"min_ngram_size", least}, {"max_ngram_size", most}});
}

/// Costs [m, n] or [1, m, n] -> the cheapest path, [2, steps].
Values dynamic_time_warping(OpContext& ctx) {
  TensorBox x = ctx.in(0);
  TBX_MODEL(x.dtype() == DType::f32 && (x.rank() == 2 || x.rank() == 3),
            "the costs are {} of rank {}, expected float of rank 2 or 3", name_of(x.dtype()), x.rank());
  if (x.rank() == 3) {
    ctx.program.add_check(x.sizes()[0] - SymInt(1), true,
                          "DynamicTimeWarping: more than one matrix of costs");
    x = ir::slice(ctx.program, x, 0, 0, 1, 1);
    x = ir::squeeze(ctx.program, x, std::vector<int>{0});
  }
  for (SymInt s : x.sizes())
    ctx.program.add_check(s - SymInt(1), false, "DynamicTimeWarping: the matrix of costs is empty");
  SymInt steps = ctx.c.unbacked_symbol("steps");
  return host_call(ctx, {x}, {{DType::i32, {2, steps}}}, {});
}

} // namespace

void register_token_search(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("NGramRepeatBlock", since(1), ngram_repeat_block, domain);
  r.add("BifurcationDetector", since(1), bifurcation_detector, domain);
  r.add("DynamicTimeWarping", since(1), dynamic_time_warping, domain);
}

} // namespace tbx::lowering
