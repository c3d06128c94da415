#include "lowering/adjoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowering/op_helpers.h"
#include "lowering/product_loops.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {

using ir::ReduceOp;

Adjoint::Adjoint(ir::Program& to, const ir::Program& from, std::span<const TensorBox> inputs,
                 std::span<const char> wanted, bool differentiated)
    : to_(to), from_(from), c_(*to.context), replay_(to, from, inputs), differentiated_(differentiated),
      active_(from.buffers.size(), 0) {
  find_active(wanted);
}

bool Adjoint::reads_active(Expr e) const {
  bool any = false;
  ir::visit(e, [&](Expr n) {
    any = any || (n->op == Op::load && active_[n->buffer]);
    if (n->op == Op::random)
      throw ir::NoDerivative{"its lowering draws random numbers, which would be others here"};
  });
  return any;
}

void Adjoint::find_active(std::span<const char> wanted) {
  for (size_t i = 0; i < wanted.size(); ++i)
    active_[from_.inputs[i].buffer] = wanted[i] && is_float(from_.at(from_.inputs[i].buffer).dtype);
  for (const ir::Operation& op : from_.operations) {
    auto mark = [&](ir::BufferId id, bool active) {
      if (!is_float(from_.at(id).dtype)) return;
      for (; id >= 0; id = from_.at(id).slice_of) active_[id] |= active;
    };
    if (const auto* compute = std::get_if<ir::Compute>(&op.what))
      mark(compute->output, reads_active(compute->loops.body));
    if (const auto* scatter = std::get_if<ir::Scatter>(&op.what))
      mark(scatter->target, reads_active(scatter->value) || active_[from_.at(scatter->target).overwrites]);
    if (const auto* call = std::get_if<ir::ExternCall>(&op.what))
      for (ir::BufferId out : call->outputs)
        mark(out, std::any_of(call->inputs.begin(), call->inputs.end(), [&](const ir::ExternOperand& in) {
               return in.buffer >= 0 && active_[in.buffer];
             }));
  }
}

/// An output is named by its memory: what stands there in the end is what the last scatter into it left.
void Adjoint::seed(size_t i, const TensorBox& gradient) {
  ir::BufferId id = from_.outputs[i].buffer;
  for (const ir::Buffer& b : from_.buffers) // later ones overwrite earlier ones
    if (b.overwrites == id) id = b.id;
  give(id, gradient);
}

/// The sum of the parts that arrived; of a slice also what arrived at the whole.
TensorBox Adjoint::total(ir::BufferId id) {
  const ir::Buffer& b = from_.at(id);
  Boxes& parts = parts_[id];
  const SymInts at = loop_vars(c_, static_cast<int>(b.sizes.size()));
  if (b.slice_of >= 0)
    if (TensorBox whole = total(b.slice_of); whole.defined()) {
      SymInts place = at;
      for (size_t d = 0; d < at.size(); ++d) place[d] += b.slice_start[d];
      parts.push_back(ir::make_pointwise(to_, whole.dtype(), b.sizes, whole.load(to_, place)));
    }
  if (parts.size() < 2) return parts.empty() ? TensorBox() : parts[0];
  Expr sum = nullptr;
  for (const TensorBox& part : parts) {
    Expr value = part.load(to_, at);
    sum = sum ? ir::add(sum, value) : value;
  }
  parts = {ir::make_pointwise(to_, compute_type(b.dtype), b.sizes, sum)};
  return parts[0];
}

void Adjoint::run() {
  for (size_t i = from_.operations.size(); i-- > 0;) {
    const auto& what = from_.operations[i].what;
    if (const auto* compute = std::get_if<ir::Compute>(&what)) {
      if (!active_[compute->output]) continue;
      if (TensorBox g = total(compute->output); g.defined()) of_loops(*compute, g);
    } else if (const auto* scatter = std::get_if<ir::Scatter>(&what)) {
      if (!active_[scatter->target]) continue;
      if (TensorBox g = total(scatter->target); g.defined()) of_scatter(*scatter, g);
    } else {
      const auto& call = std::get<ir::ExternCall>(what);
      for (ir::BufferId out : call.outputs) {
        if (!active_[out]) continue;
        if (TensorBox g = total(out); g.defined())
          for (const ir::Compute& part : as_loops(from_, call)) of_loops(part, g);
      }
    }
  }
}

Expr Adjoint::local(Boxes& locals, TensorBox box) {
  locals.push_back(std::move(box));
  return c_.local(static_cast<int>(locals.size()) - 1, compute_type(locals.back().dtype()));
}

TensorBox Adjoint::reduce(const ir::Loops& l, ReduceOp op, Expr body, const Boxes& locals) {
  return ir::make_reduction(to_, op, body->dtype, l.ranges, l.reduction_ranges, replay_(body, locals));
}

TensorBox Adjoint::scan(const ir::Loops& l, ReduceOp op, bool exclusive, bool reverse, Expr body,
                        const Boxes& locals) {
  return ir::make_scan(to_, op, body->dtype, l.ranges, l.scan_axis, exclusive, reverse,
                       replay_(body, locals));
}

namespace {

Expr is_zero(Expr e) { return ir::binary(Op::equal, e, number(e, 0)); }
Expr is_one(Expr e) { return ir::binary(Op::equal, e, number(e, 1)); }
Expr as_number(Expr condition, Expr like) { return ir::where(condition, number(like, 1), number(like, 0)); }

} // namespace

/// The product of the other factors: nothing is divided by zero. Which factors are zeros is no matter of
/// derivatives, so this has none there.
Expr Adjoint::product_seed(const ir::Loops& l, Boxes& locals) {
  Expr x = l.body, zero = is_zero(x), g = c_.local(0, x->dtype);
  Expr rest = local(locals, reduce(l, ReduceOp::prod, ir::where(zero, number(x, 1), x), locals));
  Expr zeros = local(locals, reduce(l, ReduceOp::sum, as_number(zero, x), locals));
  Expr of_zero = ir::where(is_one(zeros), rest, number(x, 0));
  Expr of_other = ir::where(is_zero(zeros), ir::div(rest, x), number(x, 0));
  return ir::mul(g, ir::where(zero, of_zero, of_other));
}

/// To the elements that gave the result, in equal parts.
Expr Adjoint::extreme_seed(const ir::Loops& l, Boxes& locals, Expr& gate) {
  Expr x = l.body, g = c_.local(0, x->dtype);
  gate = ir::binary(Op::equal, x, local(locals, reduce(l, l.reduce, x, locals)));
  Expr hits = local(locals, reduce(l, ReduceOp::sum, as_number(gate, x), locals));
  return ir::div(g, hits);
}

/// Sums of g*y over what comes later, divided by the factor; the first zero has that of products without it,
/// after it everything is constant.
Expr Adjoint::running_product_seed(const ir::Loops& l, Boxes& locals) {
  Expr x = l.body, g = c_.local(0, x->dtype);
  auto later = [&](Expr e) {
    return local(locals, scan(l, ReduceOp::sum, l.exclusive, !l.reverse, e, locals));
  };
  auto product = [&](Expr e) {
    return local(locals, scan(l, ReduceOp::prod, l.exclusive, l.reverse, e, locals));
  };
  Expr zeros = local(locals, scan(l, ReduceOp::sum, false, l.reverse, as_number(is_zero(x), x), locals));
  Expr first = ir::binary(Op::logical_and, is_one(zeros), is_zero(x));
  Expr whole = later(ir::mul(g, product(x)));
  Expr without = later(ir::mul(g, product(ir::where(first, number(x, 1), x))));
  return ir::where(is_zero(zeros), ir::div(whole, x), ir::where(first, without, number(x, 0)));
}

void Adjoint::of_loops(const ir::Compute& compute, const TensorBox& g) {
  const ir::Loops& l = compute.loops;
  const ir::Extents extents = l.extents();
  SymInts loops = extents.vars; // which read each element of the gradient again and again
  loops.insert(loops.end(), extents.rvars.begin(), extents.rvars.end());
  realize_if_repeated(to_, g, loops);
  Boxes locals{g};
  Expr gate = nullptr, seed = c_.local(0, l.body->dtype);
  if (l.kind == ir::LoopKind::scan) {
    if (l.reduce == ReduceOp::sum)
      seed =
          local(locals, scan(l, ReduceOp::sum, l.exclusive, !l.reverse, seed, locals)); // of what comes later
    else if (l.reduce == ReduceOp::prod)
      seed = differentiated_ ? running_product_polynomial(l, locals) : running_product_seed(l, locals);
    else
      throw ir::NoDerivative{fmt::format("its lowering takes a running {}", name_of(l.reduce))};
  } else if (l.kind == ir::LoopKind::reduction) {
    switch (l.reduce) {
    case ReduceOp::sum: break;
    case ReduceOp::prod:
      if (differentiated_) return of_product(l, std::move(locals));
      seed = product_seed(l, locals);
      break;
    case ReduceOp::max:
    case ReduceOp::min: seed = extreme_seed(l, locals, gate); break;
    default: return; // positions and truth values
    }
  }
  spread(l.body, seed, gate, extents, locals);
}

/// Of points that store to the same element the last one counts: their numbers, stored the same way, say
/// which that is, and which elements keep what they were.
void Adjoint::of_scatter(const ir::Scatter& s, const TensorBox& g) {
  if (s.mode != ir::StoreMode::add && s.mode != ir::StoreMode::set)
    throw ir::NoDerivative{
        fmt::format("its lowering stores with reduction '{}'", s.mode == ir::StoreMode::mul   ? "mul"
                                                               : s.mode == ir::StoreMode::max ? "max"
                                                                                              : "min")};
  SymInts place;
  for (SymInt index : s.indices) place.push_back(replay_(index));
  Expr mask = s.mask ? replay_(s.mask) : nullptr;
  Expr value = g.load(to_, place);
  TensorBox kept = g;
  if (s.mode == ir::StoreMode::set) {
    SymInt number = 0;
    for (size_t k = 0; k < s.ranges.size(); ++k) number = number * s.ranges[k] + c_.var(static_cast<int>(k));
    Expr none = c_.constant_int(DType::i64, -1);
    const TensorBox last = scatter_onto(to_, ir::make_pointwise(to_, DType::i64, g.sizes(), none),
                                        {s.ranges, place, c_.index(number), mask, ir::StoreMode::set, -1});
    const SymInts at = loop_vars(c_, g.rank());
    Expr mine = g.load(to_, at), untouched = ir::binary(Op::equal, last.load(to_, at), none);
    kept =
        ir::make_pointwise(to_, g.dtype(), g.sizes(), ir::where(untouched, mine, lowering::number(mine, 0)));
    Expr is_last = ir::binary(Op::equal, last.load(to_, place), c_.index(number));
    value = ir::where(is_last, value, lowering::number(value, 0));
  }
  give(from_.at(s.target).overwrites, kept);
  if (mask) value = ir::where(mask, ir::mask_loads(value, mask), lowering::number(value, 0));
  Boxes locals{ir::make_pointwise(to_, value->dtype, s.ranges, value)};
  spread(s.value, c_.local(0, s.value->dtype), nullptr, {s.ranges, {}}, locals);
}

void Adjoint::spread(Expr body, Expr seed, Expr gate, const ir::Extents& extents, const Boxes& locals) {
  auto partials = ir::differentiate(body, seed, [&](Expr load) { return active_[load->buffer] != 0; });
  for (const TensorBox& box : locals) realize_if_shared(to_, box, static_cast<int>(partials.size()));
  for (ir::Partial& p : partials) {
    if (gate) p.gate = p.gate ? ir::binary(Op::logical_and, gate, p.gate) : gate;
    auto part = gathered(p, extents, locals);
    give(p.load->buffer, part ? *part : scattered(p, extents, locals));
  }
}

} // namespace tbx::lowering
