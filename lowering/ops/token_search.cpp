// com.microsoft operators computed by host kernels (matrix inversion, searches in token sequences), and the
// convolution over the letters of words.
#include <algorithm>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/products.h"

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

/// Words as letters [words, length], filters [f, 1, k, e], bias [f], letter embeddings [letters, e] ->
/// [words, f]: the largest tanh of the filters over the windows of each word. A word's length is the number
/// of its letters above 0, at least k; a word that begins with 0 has none and gives 0.
Values word_conv_embedding(OpContext& ctx) {
  const TensorBox &words = ctx.in(0), &filters = ctx.in(1), &bias = ctx.in(2), &table = ctx.in(3);
  TBX_MODEL(words.rank() == 2 && filters.rank() == 4 && bias.rank() == 1 && table.rank() == 2,
            "Sequence, W, B and C have ranks {}, {}, {} and {}, expected 2, 4, 1 and 2", words.rank(),
            filters.rank(), bias.rank(), table.rank());
  auto width = filters.sizes()[2].as_constant();
  if (!width) throw_unsupported("filters of a width that is not known while compiling");
  auto must_be = [&](const char* name, SymInt size) {
    if (ctx.attr_int(name, -1) != -1)
      ctx.program.add_check(size - SymInt(ctx.attr_int(name, -1)), true,
                            fmt::format("WordConvEmbedding: {} differs from the weights", name));
  };
  must_be("embedding_size", filters.sizes()[0]);
  must_be("conv_window_size", filters.sizes()[2]);
  must_be("char_embedding_size", table.sizes()[1]);
  ctx.program.add_check(bias.sizes()[0] - filters.sizes()[0], true,
                        "WordConvEmbedding: B has another number of filters than W");
  ctx.program.add_check(filters.sizes()[1] - SymInt(1), true,
                        "WordConvEmbedding: W has more than one channel");
  ctx.program.add_check(filters.sizes()[3] - table.sizes()[1], true,
                        "WordConvEmbedding: letter embeddings do not fit W");
  ctx.program.add_check(words.sizes()[1] - SymInt(*width), false,
                        "WordConvEmbedding: words are shorter than the window");
  SymInt count = words.sizes()[0], length = words.sizes()[1], embedding = table.sizes()[1],
         f = filters.sizes()[0];
  SymInt windows = length - SymInt(*width) + SymInt(1), row = SymInt(*width) * embedding;
  TensorBox unfolded =
      generate(ctx, table.dtype(), {count, windows, *width, embedding}, [&](std::span<const SymInt> at) {
        const SymInt letter[] = {at[0], at[1] + at[2]};
        Expr id = to_compute(words.load(ctx.program, letter), DType::i64);
        const SymInt place[] = {ctx.c.indirect(id, table.sizes()[0], false), at[3]};
        return table.load(ctx.program, place);
      });
  TensorBox w = ir::permute(ctx.program, ir::reshape(ctx.program, filters, {f, row}), std::vector<int>{1, 0});
  TensorBox sums =
      matmul_boxes(ctx, ir::reshape(ctx.program, unfolded, {count, windows, row}), w, table.dtype());
  // Letters above 0 in words that begin with one.
  AxisReducer letters(ctx, words.sizes(), {1});
  TensorBox lengths = letters(ReduceOp::sum, DType::i64, words, [&](Expr e) {
    return to_compute(ir::binary(Op::greater, e, number(e, 0)), DType::i64);
  });
  TensorBox first = ir::slice(ctx.program, words, 1, 0, 1, 1);
  TensorBox used = map(ctx, DType::i64, lengths, first, [&](Expr n, Expr e) {
    Expr at_least = ir::binary(Op::max, n, number(n, static_cast<double>(*width)));
    Expr there = ir::binary(Op::greater, e, number(e, 0));
    return ir::where(there, ir::sub(at_least, number(n, static_cast<double>(*width - 1))), number(n, 0));
  });
  realize(ctx, used, "number of windows of a word");
  SymInts space{count, windows, f};
  AxisReducer reduce(ctx, space, {1});
  TensorBox best = reduce.drop(reduce(ReduceOp::max, table.dtype(), [&](std::span<const SymInt> at) {
    const SymInt word[] = {at[0], 0}, filter[] = {at[2]};
    Expr v = ir::unary(Op::tanh, ir::add(sums.load(ctx.program, at), bias.load(ctx.program, filter)));
    Expr inside = ir::binary(Op::less, ctx.c.index(at[1]), used.load(ctx.program, word));
    return ir::where(inside, v, number(v, -1e12));
  }));
  return {map(ctx, table.dtype(), best, used, [](Expr v, Expr n) {
    return ir::where(ir::binary(Op::greater, n, number(n, 0)), v, number(v, 0));
  })};
}

} // namespace

void register_token_search(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("Inverse", since(1), inverse, domain);
  r.add("NGramRepeatBlock", since(1), ngram_repeat_block, domain);
  r.add("BifurcationDetector", since(1), bifurcation_detector, domain);
  r.add("DynamicTimeWarping", since(1), dynamic_time_warping, domain);
  r.add("WordConvEmbedding", since(1), word_conv_embedding, domain);
}

} // namespace tbx::lowering
