// com.microsoft WordConvEmbedding: a convolution over the letters of words.
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

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

void register_word_conv_embedding(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("WordConvEmbedding", since(1), word_conv_embedding, domain);
  r.type_from(1, {"WordConvEmbedding"}, domain);
}

} // namespace tbx::lowering
