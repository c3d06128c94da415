// Program: adding buffers, printing, verification.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "ir/tensor_box.h"

namespace tbx::ir {

BufferId Program::new_buffer(std::string name, DType dtype, SymInts sizes) {
  Buffer b;
  b.id = static_cast<BufferId>(buffers.size());
  b.name = std::move(name);
  b.dtype = dtype;
  b.sizes = std::move(sizes);
  buffers.push_back(std::move(b));
  return buffers.back().id;
}

BufferId Program::add_constant(std::shared_ptr<const Tensor> tensor, std::string name) {
  BufferId id = new_buffer(std::move(name), tensor->dtype, SymInts(tensor->dims.begin(), tensor->dims.end()));
  Buffer& b = at(id);
  b.kind = BufferKind::constant;
  b.strides = contiguous_strides(b.sizes);
  b.constant = std::move(tensor);
  return id;
}

void Program::add_check(SymInt value, bool equal, std::string message, bool assumption) {
  if (value.is_constant()) {
    TBX_MODEL(equal ? value.is(0) : value.constant() >= 0, "{}", message);
    return;
  }
  if (!equal && provably_nonnegative(value)) return;
  if (!assumption) {
    const Bounds b = bounds_of(value);
    TBX_MODEL(equal ? b.lo <= 0 && b.hi >= 0 : b.hi >= 0, "{}", message);
  }
  for (const Check& c : checks)
    if (c.value == value && c.equal == equal && c.assumption == assumption) return;
  checks.push_back({value, equal, std::move(message), assumption, where});
}

const char* name_of(ReduceOp op) {
  switch (op) {
  case ReduceOp::sum: return "sum";
  case ReduceOp::prod: return "prod";
  case ReduceOp::max: return "max";
  case ReduceOp::min: return "min";
  case ReduceOp::any: return "any";
  case ReduceOp::all: return "all";
  case ReduceOp::argmax: return "argmax";
  case ReduceOp::argmin: return "argmin";
  case ReduceOp::argmax_last: return "argmax_last";
  case ReduceOp::argmin_last: return "argmin_last";
  }
  return "?";
}

namespace {

std::string text_of(const Compute& compute) {
  const Loops& l = compute.loops;
  std::string what;
  switch (l.kind) {
  case LoopKind::pointwise: what = "pointwise"; break;
  case LoopKind::reduction:
    what =
        fmt::format("{} over {}", name_of(l.reduce), to_string(std::span<const SymInt>(l.reduction_ranges)));
    break;
  case LoopKind::scan:
    what = fmt::format("{}scan {} along {}{}", l.exclusive ? "exclusive " : "", name_of(l.reduce),
                       l.scan_axis, l.reverse ? " reversed" : "");
    break;
  }
  return fmt::format("b{} = {} {}: {}", compute.output, what, to_string(std::span<const SymInt>(l.ranges)),
                     to_string(l.body));
}

std::string text_of(const ExternCall& call) {
  std::vector<std::string> outs, ins;
  for (BufferId b : call.outputs) outs.push_back(fmt::format("b{}", b));
  for (const ExternOperand& o : call.inputs)
    ins.push_back(o.buffer < 0 ? "-"
                               : fmt::format("b{}{}", o.buffer, to_string(std::span<const SymInt>(o.sizes))));
  return fmt::format("{} = extern {} ({})", fmt::join(outs, ", "), extern_kernels::to_string(call.problem),
                     fmt::join(ins, ", "));
}

std::string text_of(const Scatter& s) {
  static constexpr const char* kModes[] = {"=", "+=", "*=", "max=", "min="};
  return fmt::format("b{}{} {} {}{} over {}", s.target, to_string(std::span<const SymInt>(s.indices)),
                     kModes[static_cast<size_t>(s.mode)], to_string(s.value),
                     s.mask ? " if " + to_string(s.mask) : "", to_string(std::span<const SymInt>(s.ranges)));
}

} // namespace

std::string to_string(const Program& program) {
  std::string out;
  for (const Buffer& b : program.buffers) {
    const char* kind = b.kind == BufferKind::input      ? "input "
                       : b.kind == BufferKind::constant ? "constant "
                                                        : "";
    out += fmt::format("b{}: {}{}{}", b.id, kind, tbx::name_of(b.dtype),
                       to_string(std::span<const SymInt>(b.sizes)));
    if (b.slice_of >= 0)
      out +=
          fmt::format(" slice of b{} at {}", b.slice_of, to_string(std::span<const SymInt>(b.slice_start)));
    if (b.overwrites >= 0) out += fmt::format(" overwrites b{}", b.overwrites);
    if (!b.name.empty()) out += fmt::format("  # {}", printable(b.name, Lines::escaped));
    out += "\n";
  }
  for (const Operation& op : program.operations)
    out += std::visit([](const auto& what) { return text_of(what); }, op.what) + "\n";
  for (const ProgramOutput& o : program.outputs)
    out += fmt::format("output {} = b{}\n", printable(o.name, Lines::escaped), o.buffer);
  for (const Check& c : program.checks)
    out += fmt::format("{} {} {} 0: {}\n", c.assumption ? "assume" : "check", to_string(c.value),
                       c.equal ? "==" : ">=", printable(c.message, Lines::escaped));
  return out;
}

namespace {

/// Checks a program operation by operation, knowing which buffers are defined so far.
class Verifier {
public:
  explicit Verifier(const Program& program) : program_(program), defined_(program.buffers.size(), false) {}

  void run() {
    for (const Buffer& b : program_.buffers) check_buffer(b);
    for (const Operation& op : program_.operations) {
      try {
        std::visit([&](const auto& what) { check(what); }, op.what);
      } catch (Error& e) {
        e.set_where("'" + std::visit([](const auto& what) { return text_of(what); }, op.what) + "'");
        throw e;
      }
    }
    for (const ProgramInput& in : program_.inputs) TBX_INTERNAL(exists(in.buffer));
    for (const ProgramOutput& out : program_.outputs)
      TBX_INTERNAL(exists(out.buffer) && defined_[owner(out.buffer)]);
    for (const Check& c : program_.checks)
      TBX_INTERNAL(!has_loop_variable(c.value) && !has_indirect(c.value));
  }

private:
  bool exists(BufferId id) const { return id >= 0 && id < static_cast<BufferId>(program_.buffers.size()); }

  BufferId owner(BufferId id) const {
    while (program_.at(id).slice_of >= 0 || program_.at(id).overwrites >= 0)
      id = program_.at(id).slice_of >= 0 ? program_.at(id).slice_of : program_.at(id).overwrites;
    return id;
  }

  void check_buffer(const Buffer& b) {
    if (b.kind != BufferKind::computed) defined_[b.id] = true;
    TBX_INTERNAL(b.kind != BufferKind::constant || b.constant != nullptr);
    TBX_INTERNAL(b.strides.empty() || b.strides.size() == b.sizes.size());
    TBX_INTERNAL(b.slice_of < 0 || (exists(b.slice_of) && b.slice_start.size() == b.sizes.size()));
    TBX_INTERNAL(b.overwrites < 0 || exists(b.overwrites));
    for (SymInt s : b.sizes) TBX_INTERNAL(!has_loop_variable(s) && !has_indirect(s));
  }

  /// Loop variables of an index belong to the nest, constant indices lie inside.
  void check_index(SymInt e, const Extents& extents) {
    if (e.is_constant()) return;
    visit(e, [&](const SymNode& n) {
      if (n.kind == SymKind::var) TBX_INTERNAL(n.number < static_cast<int>(extents.vars.size()));
      if (n.kind == SymKind::rvar) TBX_INTERNAL(n.number < static_cast<int>(extents.rvars.size()));
    });
  }

  void check_expr(Expr e, const Extents& extents) {
    auto is_zero = [](SymInt s) { return s.is(0); };
    // A nest that may be empty reads what it reads behind a check (ir/check_bounds.h).
    auto may_be_zero = [](SymInt s) { return !provably_positive(s); };
    bool empty = std::any_of(extents.vars.begin(), extents.vars.end(), may_be_zero) ||
                 std::any_of(extents.rvars.begin(), extents.rvars.end(), may_be_zero);
    visit(e, [&](Expr n) {
      for (SymInt index : n->indices) check_index(index, extents);
      // These belong to kernels.
      TBX_INTERNAL(n->op != Op::accumulator && n->op != Op::local);
      if (n->op != Op::load) return;
      TBX_INTERNAL(exists(n->buffer));
      const Buffer& b = program_.at(n->buffer);
      TBX_INTERNAL(n->indices.size() == b.sizes.size());
      TBX_INTERNAL(n->dtype == compute_type(b.dtype));
      TBX_INTERNAL(defined_[owner(n->buffer)]);
      // A load from an empty buffer stands in a loop that a check makes empty, too.
      empty |= std::any_of(b.sizes.begin(), b.sizes.end(), is_zero);
      for (size_t k = 0; k < b.sizes.size() && !empty && !n->mask(); ++k)
        if (n->indices[k].is_constant() && b.sizes[k].is_constant())
          TBX_INTERNAL(n->indices[k].constant() >= 0 && n->indices[k].constant() < b.sizes[k].constant());
    });
  }

  void check(const Compute& compute) {
    const Loops& l = compute.loops;
    TBX_INTERNAL(exists(compute.output));
    const Buffer& out = program_.at(compute.output);
    TBX_INTERNAL(l.body != nullptr);
    check_expr(l.body, l.extents());
    TBX_INTERNAL(l.ranges.size() == out.sizes.size());
    TBX_INTERNAL(l.dtype == out.dtype || (l.dtype == DType::f32 && is_half(out.dtype)));
    bool is_arg = l.kind == LoopKind::reduction && l.reduce >= ReduceOp::argmax;
    TBX_INTERNAL(is_arg || l.body->dtype == compute_type(l.dtype));
    TBX_INTERNAL(l.kind == LoopKind::reduction || l.reduction_ranges.empty());
    TBX_INTERNAL(
        l.kind != LoopKind::scan ||
        (l.scan_axis >= 0 && l.scan_axis < static_cast<int>(l.ranges.size()) && l.reduce < ReduceOp::argmax));
    TBX_INTERNAL(out.kind == BufferKind::computed);
    defined_[owner(compute.output)] = true;
  }

  void check(const Scatter& s) {
    TBX_INTERNAL(exists(s.target));
    const Buffer& target = program_.at(s.target);
    Extents extents{s.ranges, {}};
    check_expr(s.value, extents);
    if (s.mask) {
      check_expr(s.mask, extents);
      TBX_INTERNAL(s.mask->dtype == DType::boolean);
    }
    TBX_INTERNAL(s.value->dtype == compute_type(target.dtype));
    TBX_INTERNAL(defined_[owner(s.target)]);
    TBX_INTERNAL(s.indices.size() == target.sizes.size());
    for (SymInt index : s.indices) check_index(index, extents);
  }

  void check(const ExternCall& call) {
    for (const ExternOperand& in : call.inputs) {
      if (in.buffer < 0) continue;
      TBX_INTERNAL(exists(in.buffer));
      TBX_INTERNAL(defined_[owner(in.buffer)]);
      TBX_INTERNAL(in.start.size() == program_.at(in.buffer).sizes.size());
      TBX_INTERNAL(in.coefficients.size() == in.sizes.size() * in.start.size());
    }
    for (BufferId b : call.outputs) {
      if (b < 0) continue;
      TBX_INTERNAL(exists(b));
      defined_[owner(b)] = true;
    }
  }

  const Program& program_;
  std::vector<bool> defined_;
};

} // namespace

void verify(const Program& program) { Verifier(program).run(); }

} // namespace tbx::ir
