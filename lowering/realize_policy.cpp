// The realize policy: counts reads and operations of a body and compares them with RealizeLimits.
#include "lowering/realize_policy.h"

#include <fmt/format.h>

#include "extern_kernels/catalogue.h"

namespace tbx::lowering {

std::string reason_to_realize(const ir::Loops& loops, int users, const RealizeLimits& limits) {
  if (loops.kind != ir::LoopKind::pointwise)
    return {}; // the first load puts reductions and scans into memory
  ir::ExprCounts n = ir::count({&loops.body, 1});
  if (n.ops > limits.ops) return fmt::format("{} operations in one loop nest (limit {})", n.ops, limits.ops);
  if (n.loads > limits.reads)
    return fmt::format("{} reads in one loop nest (limit {})", n.loads, limits.reads);
  if (users <= 1) return {};
  if (n.expensive > limits.shared_expensive)
    return fmt::format("{} users of an expensive computation", users);
  if (n.loads > limits.shared_reads) return fmt::format("{} users of {} reads", users, n.loads);
  if (n.ops > limits.shared_ops) return fmt::format("{} users of {} operations", users, n.ops);
  if ((loops.dtype == DType::u8 || loops.dtype == DType::i8) && n.loads > 0 && n.ops > limits.shared_byte_ops)
    return fmt::format("{} users of bytes of {} operations", users, n.ops);
  return {};
}

namespace {

/// The call gives a product whose kernel adds to it: of packed integers that of one row, on a GPU.
bool is_product(const ir::Program& program, const ir::ExternCall& call) {
  if (!std::holds_alternative<extern_kernels::PackedMatMulProblem>(call.problem))
    return extern_kernels::is_product(call.problem);
  const ir::SymInts& sizes = program.at(call.outputs[0]).sizes;
  return program.target.cuda && !sizes.empty() && sizes[0].is(1);
}

/// The buffer holds the result of a convolution or a matrix product.
bool is_product(const ir::Program& program, ir::BufferId id) {
  constexpr size_t kBack = 64; // products are followed at once by what becomes part of them
  const auto& operations = program.operations;
  for (size_t i = operations.size(); i-- > 0 && operations.size() - i <= kBack;)
    if (const auto* call = std::get_if<ir::ExternCall>(&operations[i].what))
      for (ir::BufferId out : call->outputs)
        if (out == id) return is_product(program, *call);
  return false;
}

/// Little work on every element of a product, which the product's kernel can do before it stores the element.
/// `of_integers`: of sums of integers, too, which are made floats and scaled by two numbers.
bool finishes_product(const ir::Program& program, const ir::Loops& loops, bool of_integers = false) {
  if (loops.kind != ir::LoopKind::pointwise || loops.dtype != DType::f32) return false;
  int products = 0, residuals = 0, vectors = 0, casts = 0;
  bool simple = true;
  ir::visit(loops.body, [&](ir::Expr n) {
    if (n->op == ir::Op::add || n->op == ir::Op::mul || n->op == ir::Op::max || n->op == ir::Op::constant)
      return;
    if (n->op == ir::Op::cast && n->args[0]->dtype == DType::i32) {
      ++casts;
      return;
    }
    simple &= n->op == ir::Op::load && !n->mask();
    if (!simple) return;
    const ir::SymInts& sizes = program.at(n->buffer).sizes;
    bool whole = ir::provably_equal(ir::product(sizes), ir::product(loops.ranges));
    // Of one row a bias has as many elements; a GPU gains by the end of a product there, too.
    if (program.target.cuda && sizes.size() <= 1 && loops.ranges.size() > 1) whole = false;
    if (whole && is_product(program, n->buffer)) {
      ++products;
    } else if (whole) {
      ++residuals;
    } else {
      ++vectors;
      simple &= sizes.size() <= 1; // a bias or a scale
    }
  });
  const int ops = ir::count({&loops.body, 1}).ops;
  if (of_integers && casts == 1) return simple && products == 1 && residuals == 0 && vectors <= 3 && ops <= 5;
  // A bias and a residual, between which norms stand that read their sum several times.
  return simple && casts == 0 && products == 1 && residuals <= 1 && vectors <= 1 && ops <= 3;
}

} // namespace

void realize_if_shared(ir::Program& program, const ir::TensorBox& x, int users) {
  ir::StorageBox& storage = *x.storage();
  storage.users += users;
  if (storage.is_realized()) return;
  std::string reason = reason_to_realize(storage.loops(), storage.users);
  if (reason.empty() && storage.users > 1 && finishes_product(program, storage.loops()))
    reason = fmt::format("end of a product with {} users", storage.users);
  if (!reason.empty()) storage.realize(program, std::move(reason));
}

void realize_residual(ir::Program& program, const ir::TensorBox& x, const ir::TensorBox& product, int users) {
  ir::StorageBox& storage = *x.storage();
  if (users < 2 || storage.is_realized() || storage.loops().kind != ir::LoopKind::pointwise ||
      x.dtype() != DType::f32 || x.sizes() != product.sizes())
    return;
  const ir::StorageBox& end = *product.storage();
  if (end.is_realized() ? is_product(program, end.buffer()) : finishes_product(program, end.loops()))
    storage.realize(program, "residual that a product adds");
}

void realize_if_in_parts(ir::Program& program, const ir::TensorBox& x) {
  ir::StorageBox& storage = *x.storage();
  if (storage.is_realized() || x.is_identity_view()) return;
  const ir::Loops& loops = storage.loops();
  if (!ir::provably_equal(ir::product(x.sizes()), ir::product(loops.ranges)) &&
      finishes_product(program, loops, program.target.cuda))
    storage.realize(program, "end of a product that is seen in parts");
}

void realize_bytes_of_product(ir::Program& program, const ir::TensorBox& x) {
  ir::StorageBox& storage = *x.storage();
  if (storage.is_realized() || storage.loops().kind != ir::LoopKind::pointwise || size_of(x.dtype()) != 1)
    return;
  bool reads_product = false;
  ir::visit(storage.loops().body,
            [&](ir::Expr n) { reads_product |= n->op == ir::Op::load && is_product(program, n->buffer); });
  if (reads_product) storage.realize(program, "bytes of a product");
}

/// Where it is read is data: a loop along what is read so is no vector.
static bool reads_by_index(const ir::Loops& loops) {
  bool found = false;
  ir::visit(loops.body, [&](ir::Expr n) {
    for (ir::SymInt i : n->indices) found |= ir::has_indirect(i);
  });
  return found;
}

void realize_if_repeated(ir::Program& program, const ir::TensorBox& x, const ir::SymInts& sizes) {
  ir::StorageBox& storage = *x.storage();
  if (storage.is_realized() || storage.loops().kind != ir::LoopKind::pointwise) return;
  int64_t have = ir::size_hint(ir::product(storage.loops().ranges)), want = ir::size_hint(ir::product(sizes));
  if (want < 2 * have) return;
  RealizeLimits limits;
  ir::ExprCounts n = ir::count({&storage.loops().body, 1});
  if (n.expensive > limits.shared_expensive || n.loads > limits.shared_reads || n.ops > limits.shared_ops)
    storage.realize(program, fmt::format("broadcast of {} operations and {} reads", n.ops, n.loads));
  else if (!program.target.cuda && reads_by_index(storage.loops()))
    storage.realize(program, "broadcast of elements found by index");
}

} // namespace tbx::lowering
