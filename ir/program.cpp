// Program: adding buffers, printing, verification.
#include <fmt/format.h>

#include "base/error.h"
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
      what = fmt::format("{} over {}", name_of(l.reduce), to_string(std::span<const SymInt>(l.reduction_ranges)));
      break;
    case LoopKind::scan:
      what = fmt::format("{}scan {} along {}{}", l.exclusive ? "exclusive " : "", name_of(l.reduce), l.scan_axis,
                         l.reverse ? " reversed" : "");
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
  return fmt::format("b{}{} {}= {} over {}", s.target, to_string(std::span<const SymInt>(s.indices)),
                     s.mode == StoreMode::set ? "" : "combine", to_string(s.value),
                     to_string(std::span<const SymInt>(s.ranges)));
}

}  // namespace

std::string to_string(const Program& program) {
  std::string out;
  for (const Buffer& b : program.buffers) {
    const char* kind = b.kind == BufferKind::input ? "input " : b.kind == BufferKind::constant ? "constant " : "";
    out += fmt::format("b{}: {}{}{}", b.id, kind, tbx::name_of(b.dtype), to_string(std::span<const SymInt>(b.sizes)));
    if (b.slice_of >= 0)
      out += fmt::format(" slice of b{} at {}", b.slice_of, to_string(std::span<const SymInt>(b.slice_start)));
    if (b.overwrites >= 0) out += fmt::format(" overwrites b{}", b.overwrites);
    if (!b.name.empty()) out += fmt::format("  # {}", b.name);
    out += "\n";
  }
  for (const Operation& op : program.operations)
    out += std::visit([](const auto& what) { return text_of(what); }, op.what) + "\n";
  for (const ProgramOutput& o : program.outputs) out += fmt::format("output {} = b{}\n", o.name, o.buffer);
  for (const Check& c : program.checks)
    out += fmt::format("check {} {} 0: {}\n", to_string(c.value), c.equal ? "==" : ">=", c.message);
  return out;
}

void verify(const Program& program) {
  std::vector<bool> defined(program.buffers.size(), false);
  auto owner = [&](BufferId id) {
    while (program.at(id).slice_of >= 0 || program.at(id).overwrites >= 0)
      id = program.at(id).slice_of >= 0 ? program.at(id).slice_of : program.at(id).overwrites;
    return id;
  };
  for (const Buffer& b : program.buffers) {
    if (b.kind != BufferKind::computed) defined[b.id] = true;
    TBX_INTERNAL(b.kind != BufferKind::constant || b.constant != nullptr);
  }
  auto check_expr = [&](Expr e) {
    if (!e) return;
    visit(e, [&](Expr n) {
      if (n->op != Op::load) return;
      TBX_INTERNAL(n->buffer >= 0 && n->buffer < static_cast<BufferId>(program.buffers.size()));
      const Buffer& b = program.at(n->buffer);
      TBX_INTERNAL(n->indices.size() == b.sizes.size());
      TBX_INTERNAL(n->dtype == compute_type(b.dtype));
      TBX_INTERNAL(defined[owner(n->buffer)]);
    });
  };
  for (const Operation& op : program.operations) {
    if (const auto* compute = std::get_if<Compute>(&op.what)) {
      check_expr(compute->loops.body);
      TBX_INTERNAL(compute->loops.ranges.size() == program.at(compute->output).sizes.size());
      TBX_INTERNAL(compute->loops.dtype == program.at(compute->output).dtype);
      defined[owner(compute->output)] = true;
    } else if (const auto* scatter = std::get_if<Scatter>(&op.what)) {
      check_expr(scatter->value);
      check_expr(scatter->mask);
      TBX_INTERNAL(defined[owner(scatter->target)]);
      TBX_INTERNAL(scatter->indices.size() == program.at(scatter->target).sizes.size());
    } else {
      const auto& call = std::get<ExternCall>(op.what);
      for (const ExternOperand& in : call.inputs) {
        if (in.buffer < 0) continue;
        TBX_INTERNAL(defined[owner(in.buffer)]);
        TBX_INTERNAL(in.coefficients.size() == in.sizes.size() * program.at(in.buffer).sizes.size());
      }
      for (BufferId b : call.outputs)
        if (b >= 0) defined[owner(b)] = true;
    }
  }
  for (const ProgramOutput& out : program.outputs) TBX_INTERNAL(defined[owner(out.buffer)]);
}

}  // namespace tbx::ir
