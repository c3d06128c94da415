#include "ir/check_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/index_range.h"
#include "ir/size_facts.h"

namespace tbx::ir {
namespace {

/// An expression of indices as an index; nullopt where elements take part.
std::optional<SymInt> as_index(Expr e) {
  if (e->op == Op::index) return e->indices[0];
  if (e->op == Op::constant && e->dtype == DType::i64) return SymInt(e->as_int());
  return std::nullopt;
}

/// What holds of indices where `mask` is true, as expressions >= 0.
SymInts facts_of(Expr mask) {
  SymInts facts;
  if (!mask) return facts;
  if (mask->op == Op::logical_and) {
    for (Expr part : {mask->args[0], mask->args[1]}) {
      SymInts of_part = facts_of(part);
      facts.insert(facts.end(), of_part.begin(), of_part.end());
    }
    return facts;
  }
  if (!is_comparison(mask->op) || mask->args[0]->dtype != DType::i64) return facts;
  auto a = as_index(mask->args[0]), b = as_index(mask->args[1]);
  if (!a || !b) return facts;
  switch (mask->op) {
  case Op::less: facts = {*b - *a - SymInt(1)}; break;
  case Op::less_equal: facts = {*b - *a}; break;
  case Op::greater: facts = {*a - *b - SymInt(1)}; break;
  case Op::greater_equal: facts = {*a - *b}; break;
  case Op::equal: facts = {*a - *b, *b - *a}; break;
  default: break;
  }
  return facts;
}

/// `e` where a division by a size of 0, which nothing is read with, gives any number instead of an error.
SymInt with_divisors(SymInt e) {
  std::unordered_map<const SymNode*, SymInt> divisions;
  visit(e, [&](const SymNode& n) {
    if (n.kind != SymKind::floordiv && n.kind != SymKind::mod) return;
    if (provably_positive(n.args[1])) return;
    const SymInt of = replace(n.args[0], divisions), by = max(replace(n.args[1], divisions), 1);
    divisions[&n] = n.kind == SymKind::floordiv ? floordiv(of, by) : mod(of, by);
  });
  return divisions.empty() ? e : replace(e, divisions);
}

/// One operation: the points of its nest, and who is named when an index is outside.
class NestChecker {
public:
  NestChecker(Program& program, const SizeFacts& facts, const Operation& op, Extents extents,
              BoundsReport& report)
      : program_(program), facts_(facts), op_(op), extents_(std::move(extents)), report_(report) {
    for (SymInt e : extents_.vars) known_.vars.push_back(facts.in_terms(e));
    for (SymInt e : extents_.rvars) known_.rvars.push_back(facts.in_terms(e));
    prover_ = std::make_unique<RangeProver>(known_, facts.nonnegative());
  }

  bool is_empty() const {
    auto zero = [](SymInt e) { return e.is(0); };
    return std::ranges::any_of(extents_.vars, zero) || std::ranges::any_of(extents_.rvars, zero);
  }

  /// The expression with every load inside of its buffer.
  Expr checked(Expr e) {
    if (!e) return e;
    bool all = true;
    visit(e, [&](Expr n) {
      if (n->op == Op::load) all = all && is_inside(n->buffer, n->indices, facts_of(n->mask()));
    });
    if (all) return e;
    return rewrite(e, [&](Expr n) -> Expr {
      if (n->op != Op::load) return n;
      SymInts indices = checked(n->buffer, n->indices, n->mask());
      return indices == n->indices ? n : n->context->load(n->buffer, n->dtype, indices, n->mask());
    });
  }

  /// `indices` of a buffer, with checks where they need any.
  SymInts checked(BufferId id, const SymInts& indices, Expr mask) {
    const Buffer& b = program_.at(id);
    const SymInts also = in_terms(facts_of(mask));
    SymInts result = indices;
    for (size_t k = 0; k < indices.size(); ++k) {
      if (is_inside(indices[k], b.sizes[k], also)) continue;
      if (!mask && add_plan_check(b, k, indices[k])) {
        ++report_.plan_checks;
      } else {
        ++report_.kernel_checks;
        const int origin = op_.origins.empty() ? -1 : op_.origins.back();
        result[k] =
            program_.context->indirect(program_.context->index(indices[k]), b.sizes[k], false, origin);
      }
    }
    return result;
  }

  /// An operand of a call, which is a view by strides.
  void check(const ExternOperand& in) {
    const Buffer& b = program_.at(in.buffer);
    const size_t rank = in.sizes.size(), r = in.start.size();
    SymInts at = in.start;
    for (size_t d = 0; d < rank; ++d)
      for (size_t k = 0; k < r; ++k)
        at[k] += in.coefficients[d * r + k] * program_.context->var(static_cast<int>(d));
    if (is_inside(in.buffer, at, {})) return;
    // A view that regroups dimensions has its address in the last index (realize_strided).
    const bool flat = r > 1 && b.strides == contiguous_strides(b.sizes) &&
                      std::all_of(at.begin(), at.end() - 1, [](SymInt i) { return i.is(0); });
    const SymInts sizes = flat ? SymInts{product(b.sizes)} : b.sizes;
    if (flat) at = {at.back()};
    for (size_t k = 0; k < at.size(); ++k) {
      if (is_inside(at[k], sizes[k], {})) continue;
      TBX_INTERNAL(add_plan_check(b, k, at[k], sizes[k]));
      ++report_.plan_checks;
    }
  }

private:
  SymInts in_terms(SymInts es) const {
    for (SymInt& e : es) e = facts_.in_terms(e);
    return es;
  }

  bool is_inside(BufferId id, const SymInts& indices, SymInts also) {
    const Buffer& b = program_.at(id);
    also = in_terms(std::move(also));
    for (size_t k = 0; k < indices.size(); ++k)
      if (!is_inside(indices[k], b.sizes[k], also)) return false;
    return true;
  }

  bool is_inside(SymInt index, SymInt size, const SymInts& also) {
    index = facts_.in_terms(index);
    size = facts_.in_terms(size);
    return prover_->nonnegative(index, also) && prover_->nonnegative(size - SymInt(1) - index, also);
  }

  bool add_plan_check(const Buffer& b, size_t k, SymInt index) {
    return add_plan_check(b, k, index, b.sizes[k]);
  }

  /// False when no check before a run says exactly what the nest will read.
  bool add_plan_check(const Buffer& b, size_t k, SymInt index, SymInt size) {
    auto least = extreme(index, extents_, false), greatest = extreme(index, extents_, true);
    if (!least || !greatest) return false;
    // An empty nest reads nothing.
    std::optional<SymInt> points;
    for (const SymInts* sizes : {&extents_.vars, &extents_.rvars})
      for (SymInt e : *sizes)
        if (!provably_positive(e)) points = points ? min(*points, e) : e;
    const std::string what = b.name.empty() ? fmt::format("b{}", b.id) : fmt::format("'{}'", b.name);
    auto require = [&](SymInt at, SymInt value) {
      if (provably_nonnegative(value)) return;
      if (points) value = max(with_divisors(value), SymInt(0) - *points);
      program_.add_check(value, false,
                         fmt::format("index {} is outside an axis of size {} (dimension {} of {})",
                                     to_string(at), to_string(size), k, what));
    };
    require(*least, *least);
    require(*greatest, size - SymInt(1) - *greatest);
    return true;
  }

  Program& program_;
  const SizeFacts& facts_;
  const Operation& op_;
  Extents extents_, known_; ///< as they are, and in terms of the facts
  BoundsReport& report_;
  std::unique_ptr<RangeProver> prover_;
};

/// A part of a buffer lies inside of it.
void check_part(Program& program, const Buffer& b, BoundsReport& report) {
  const Buffer& whole = program.at(b.slice_of);
  for (size_t k = 0; k < b.sizes.size(); ++k)
    for (SymInt value : {b.slice_start[k], whole.sizes[k] - b.slice_start[k] - b.sizes[k]}) {
      if (provably_nonnegative(value)) continue;
      program.add_check(value, false,
                        fmt::format("dimension {} of a part of size {} does not fit into one of size {}", k,
                                    to_string(b.sizes[k]), to_string(whole.sizes[k])));
      ++report.plan_checks;
    }
}

/// "node 'y' (Gather)": the nodes that an operation computes.
std::string nodes_of(const Program& program, const Operation& op) {
  std::vector<std::string> names;
  for (int o : op.origins) {
    if (o < 0 || o >= static_cast<int>(program.origin_names.size())) continue;
    const std::string& text = program.origin_names[static_cast<size_t>(o)]; // "name (Op)"
    const size_t end = std::min(text.rfind(" ("), text.size());
    names.push_back("'" + text.substr(0, end) + "'" + text.substr(end));
  }
  if (names.empty()) return "";
  return fmt::format("{} {}", names.size() == 1 ? "node" : "one of the nodes", fmt::join(names, ", "));
}

void check_operation(Program& program, const SizeFacts& facts, Operation& op, BoundsReport& report) {
  if (auto* compute = std::get_if<Compute>(&op.what)) {
    NestChecker nest(program, facts, op, compute->loops.extents(), report);
    if (!nest.is_empty()) compute->loops.body = nest.checked(compute->loops.body);
  } else if (auto* scatter = std::get_if<Scatter>(&op.what)) {
    NestChecker nest(program, facts, op, {scatter->ranges, {}}, report);
    if (nest.is_empty()) return;
    scatter->value = nest.checked(scatter->value);
    scatter->mask = nest.checked(scatter->mask);
    scatter->indices = nest.checked(scatter->target, scatter->indices, scatter->mask);
    for (SymInt& index : scatter->indices) {
      if (!has_indirect(index)) continue;
      // The loads inside of an index are found where it stands in an expression.
      index = nest.checked(program.context->index(index))->indices[0];
    }
  } else {
    for (const ExternOperand& in : std::get<ExternCall>(op.what).inputs) {
      if (in.buffer < 0) continue;
      NestChecker view(program, facts, op, {in.sizes, {}}, report);
      if (!view.is_empty()) view.check(in);
    }
  }
}

} // namespace

BoundsReport check_bounds(Program& program) {
  BoundsReport report;
  SizeFacts facts;
  for (const Check& check : program.checks) facts.add(check);
  for (const Buffer& b : program.buffers)
    if (b.slice_of >= 0) check_part(program, b, report);
  const std::string where = program.where;
  for (Operation& op : program.operations) {
    program.where = nodes_of(program, op);
    try {
      check_operation(program, facts, op, report);
    } catch (Error& e) {
      e.set_where(program.where);
      throw;
    }
  }
  program.where = where;
  return report;
}

} // namespace tbx::ir
