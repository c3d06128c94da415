// Finds the source of a chain of 8 bits and runs the chain in the evaluator, once for each value.
#include "codegen/byte_tables.h"

#include <cstring>
#include <unordered_set>
#include <vector>

#include "ir/evaluate.h"
#include "ir/tensor_box.h"

namespace tbx::codegen {

using ir::Expr;
using ir::Op;

namespace {

struct Chain {
  int ops = 0;
  bool closed = true; ///< depends on the source and constants alone
};

/// What lies between `e` and `source`.
Chain chain_between(Expr e, Expr source) {
  Chain chain;
  std::vector<Expr> left{e};
  std::unordered_set<Expr> seen{e};
  while (!left.empty() && chain.closed) {
    Expr x = left.back();
    left.pop_back();
    if (x == source || x->op == Op::constant) continue;
    constexpr int kExpensive = 20; // of the instructions of an exponential or a division
    chain.ops += ir::is_expensive(x->op) || x->op == Op::div ? kExpensive : 1;
    chain.closed = x->num_args > 0 && x->op != Op::load && x->op != Op::random;
    for (int i = 0; i < x->num_args; ++i)
      if (seen.insert(x->args[i]).second) left.push_back(x->args[i]);
  }
  return chain;
}

/// The nearest value of 8 bits that decides `e`, among the first ones below it.
Expr source_of(Expr e) {
  constexpr int kOps = 10;      // instructions that a look-up takes, about
  constexpr size_t kDepth = 64; // nodes looked at: chains are short, and every operation asks
  std::vector<Expr> left{e};
  std::unordered_set<Expr> seen{e};
  Expr best = nullptr;
  for (size_t i = 0; i < left.size(); ++i) {
    Expr x = left[i];
    if (x != e && is_byte(x->dtype) && x->op != Op::constant) {
      const Chain chain = chain_between(e, x);
      if (chain.closed && chain.ops > kOps) best = x; // one further down has the longer chain
    }
    if (x->op == Op::load) continue;
    for (int k = 0; k < x->num_args; ++k)
      if (seen.insert(x->args[k]).second) left.push_back(x->args[k]);
    if (left.size() > kDepth) return nullptr;
  }
  return best;
}

} // namespace

std::optional<ByteTable> byte_table(Expr e) {
  if (!is_byte(e->dtype) || e->num_args == 0 || e->op == Op::load) return std::nullopt;
  Expr source = source_of(e);
  if (!source) return std::nullopt;
  ir::Context& c = *e->context;
  constexpr ir::BufferId kBytes = 0;
  Expr byte = c.load(kBytes, source->dtype, {c.var(0)});
  ir::Loops chain;
  chain.ranges = {256};
  chain.dtype = e->dtype;
  chain.body = ir::rewrite(e, [&](Expr x) { return x == source ? byte : x; });
  Tensor bytes = Tensor::make(source->dtype, {256});
  for (int i = 0; i < 256; ++i) bytes.mutable_data()[i] = static_cast<std::byte>(i);
  const Tensor results = ir::evaluate_loops(chain, [&](ir::BufferId) -> const Tensor& { return bytes; });
  ByteTable table;
  table.source = source;
  std::memcpy(table.values.data(), results.data, table.values.size());
  return table;
}

} // namespace tbx::codegen
