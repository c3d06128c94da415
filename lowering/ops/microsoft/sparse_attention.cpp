// com.microsoft SparseAttention: GroupQueryAttention whose queries see some blocks of the keys only.
#include <algorithm>
#include <limits>

#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

/// Lowers as if the node were a GroupQueryAttention.
std::vector<LoweredValue> group_query_attention(OpContext& ctx, std::vector<LoweredValue> inputs,
                                                std::map<std::string, Attribute> attributes) {
  const OpEntry* entry = Registry::instance().find(ctx.node.domain, "GroupQueryAttention", 1);
  TBX_INTERNAL(entry != nullptr);
  Node node = ctx.node; // keeps the names of the results and the origin
  node.op_type = "GroupQueryAttention";
  node.attributes = std::move(attributes);
  node.inputs.assign(inputs.size(), -1);
  OpContext as(ctx.program, ctx.graph, node, std::move(inputs), ctx.pool, ctx.lower_subgraph);
  return entry->lower(as);
}

/// The blocks that are seen, [layouts, rows, columns] of 0 and 1, from their numbers by rows.
TensorBox block_mask(OpContext& ctx, int64_t heads) {
  for (int i : {5, 6})
    TBX_MODEL(ctx.rank(i) == 2 && ctx.dtype(i) == DType::i32, "{} is {} of rank {}, expected int32 of rank 2",
              i == 5 ? "block_row_indices" : "block_col_indices", name_of(ctx.dtype(i)), ctx.rank(i));
  const int64_t layouts = known_size(ctx.sizes(5)[0], "the number of layouts");
  TBX_MODEL(layouts > 0 && heads % layouts == 0, "{} heads cannot share {} layouts", heads, layouts);
  require_equal(ctx, ctx.sizes(5)[0], ctx.sizes(6)[0], "layouts of block_row_indices and block_col_indices");
  const SymInt blocks = ctx.sizes(5)[1] - SymInt(1);
  ctx.program.add_check(blocks - SymInt(1), false, "SparseAttention: block_row_indices has no rows");
  return host_call(ctx, {ctx.in(5), ctx.in(6)}, {{DType::u8, {layouts, blocks, blocks}}}, {}).at(0).tensor;
}

std::vector<LoweredValue> sparse_attention(OpContext& ctx) {
  ir::Program& p = ctx.program;
  ir::Context& c = ctx.c;
  const int64_t heads = head_count(ctx, "num_heads"), kv_heads = head_count(ctx, "kv_num_heads");
  const int64_t block = ctx.required_int("sparse_block_size");
  TBX_MODEL(block > 0 && block <= (1 << 20), "sparse_block_size is {}", block);
  TBX_MODEL(ctx.rank(0) == 3 && ctx.rank(3) == 4, "query and past_key have ranks {} and {}, expected 3 and 4",
            ctx.rank(0), ctx.rank(3));
  TBX_MODEL(ctx.rank(8) == 1 && ctx.dtype(8) == DType::i32,
            "key_total_sequence_lengths is {} of rank {}, expected int32 of rank 1", name_of(ctx.dtype(8)),
            ctx.rank(8));
  const SymInt batch = ctx.sizes(0)[0], queries = ctx.sizes(0)[1], room = ctx.sizes(3)[2];
  require_equal(ctx, ctx.sizes(8)[0], batch, "batch size and number of key_total_sequence_lengths");
  require_equal(ctx, ir::product(ctx.sizes(7)), 1, "number of total_sequence_length and 1");
  const TensorBox seen = block_mask(ctx, heads), lengths = ctx.in(8);
  const SymInt layouts = seen.sizes()[0], blocks = seen.sizes()[1];
  const TensorBox total = ir::reshape(p, ctx.in(7), {1});

  const SymInt first[] = {SymInt(0)};
  auto whole = [&](int64_t v) { return c.constant_int(DType::i64, v); };
  TensorBox bias = generate(ctx, DType::f32, {batch, heads, queries, room}, [&](std::span<const SymInt> at) {
    Expr length = to_compute(lengths.load(p, at.first(1)), DType::i64);
    Expr start = ir::binary(Op::max, ir::sub(length, c.index(queries)), whole(0));
    Expr prompt = ir::binary(Op::equal, to_compute(total.load(p, first), DType::i64), c.index(queries));
    Expr query = ir::add(ir::where(prompt, whole(0), start), c.index(at[2]));
    Expr row = ir::div(query, whole(block)), column = ir::div(c.index(at[3]), whole(block));
    Expr end = c.index(blocks);
    Expr inside =
        ir::binary(Op::logical_and, ir::binary(Op::less, row, end), ir::binary(Op::less, column, end));
    const SymInt from[] = {ir::mod(at[1], layouts),
                           c.indirect(ir::where(inside, row, whole(0)), blocks, false),
                           c.indirect(ir::where(inside, column, whole(0)), blocks, false)};
    Expr is_seen = ir::binary(Op::not_equal, to_compute(seen.load(p, from), DType::i64), whole(0));
    is_seen = ir::binary(Op::logical_and, inside, is_seen);
    return ir::where(is_seen, c.constant(DType::f32, 0),
                     c.constant(DType::f32, std::numeric_limits<float>::lowest()));
  });
  TensorBox last =
      map(ctx, DType::i32, lengths, [&](Expr n) { return ir::sub(n, c.constant_int(DType::i32, 1)); });

  std::vector<LoweredValue> inputs(11);
  for (int i = 0; i < 5; ++i)
    if (ctx.has(i)) inputs[static_cast<size_t>(i)] = ctx.value(i);
  inputs[5] = last;
  inputs[6] = ctx.value(7);
  for (int i : {9, 10})
    if (ctx.has(i)) inputs[static_cast<size_t>(i) - 2] = ctx.value(i);
  inputs[10] = bias;
  std::map<std::string, Attribute> attributes{{"num_heads", heads}, {"kv_num_heads", kv_heads}};
  for (const char* name : {"do_rotary", "rotary_interleaved"}) attributes[name] = ctx.attr_int(name, 0);
  if (ctx.has_attr("scale")) attributes["scale"] = ctx.attr_float("scale", 0);
  return group_query_attention(ctx, std::move(inputs), std::move(attributes));
}

} // namespace

void register_sparse_attention(Registry& r) {
  r.add("SparseAttention", since(1), sparse_attention, "com.microsoft");
  r.type_from(0, {"SparseAttention"}, "com.microsoft");
}

} // namespace tbx::lowering
