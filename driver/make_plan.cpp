#include "driver/make_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/budget.h"
#include "base/error.h"
#include "driver/call_work.h"
#include "fusion/dependencies.h"
#include "ir/owner.h"

namespace tbx::driver {

using namespace ir;
using runtime::BufferPlan;
using runtime::SizeExpr;
using runtime::SizeExprs;
using runtime::StorageKind;
using Code = SizeExpr::Code;

namespace {

/// Of numbers in no memory that one result may be computed of: some ten seconds.
constexpr int64_t kMostSteps = int64_t{1} << 33;

void append(SizeExpr& out, SymInt e) {
  if (e.is_constant()) {
    out.items.push_back({Code::push, e.constant()});
    return;
  }
  const SymNode& n = *e.node();
  auto two = [&](Code code) {
    append(out, n.args[0]);
    append(out, n.args[1]);
    out.items.push_back({code, 0});
  };
  switch (n.kind) {
  case SymKind::symbol: out.items.push_back({Code::symbol, n.number}); return;
  case SymKind::add: {
    out.items.push_back({Code::push, n.constant});
    for (auto [coefficient, term] : n.terms) {
      append(out, SymInt(term));
      if (coefficient != 1) {
        out.items.push_back({Code::push, coefficient});
        out.items.push_back({Code::mul, 0});
      }
      out.items.push_back({Code::add, 0});
    }
    return;
  }
  case SymKind::mul:
    append(out, n.args[0]);
    for (size_t i = 1; i < n.args.size(); ++i) {
      append(out, n.args[i]);
      out.items.push_back({Code::mul, 0});
    }
    return;
  case SymKind::floordiv: return two(Code::floordiv);
  case SymKind::mod: return two(Code::mod);
  case SymKind::min: return two(Code::min);
  case SymKind::max: return two(Code::max);
  case SymKind::var:
  case SymKind::rvar:
  case SymKind::indirect: break;
  }
  TBX_INTERNAL(false && "a size contains a loop variable");
}

SizeExprs size_exprs(const SymInts& es) {
  SizeExprs out;
  for (SymInt e : es) out.push_back(size_expr(e));
  return out;
}

class PlanMaker {
public:
  PlanMaker(const fusion::Schedule& schedule, const std::vector<codegen::EmittedKernel>& emitted)
      : schedule_(schedule), program_(schedule.program), emitted_(emitted) {}

  PlanResult run() {
    executable_.origin_names = program_.origin_names;
    for (const SymNode* s : program_.context->symbols()) executable_.symbol_names.push_back(s->name);
    make_buffers();
    make_signature();
    for (const Check& check : program_.checks)
      executable_.checks.push_back(
          {size_expr(check.value), check.equal, check.message, check.assumption, check.where});
    size_t kernel = 0;
    for (const fusion::Group& group : schedule_.groups) {
      check_stop_often();
      if (const auto* program = std::get_if<KernelProgram>(&group.what)) {
        add_kernel(group, *program, kernel < emitted_.size() ? &emitted_[kernel] : nullptr);
        ++kernel;
      } else {
        add_extern(group, std::get<ExternCall>(group.what));
      }
    }
    set_lifetimes(executable_);
    return {std::move(executable_), std::move(steps_), std::move(evaluated_)};
  }

private:
  void make_buffers() {
    index_of_.assign(program_.buffers.size(), -1);
    std::vector<bool> used(program_.buffers.size(), false);
    for (const fusion::Group& g : schedule_.groups) {
      for (BufferId b : g.reads) used[b] = true;
      for (BufferId b : g.writes) used[b] = true;
    }
    for (const ProgramInput& in : program_.inputs) used[in.buffer] = true;
    for (const ProgramOutput& out : program_.outputs) used[out.buffer] = true;
    for (const Buffer& b : program_.buffers) {
      if (!used[b.id] || ir::owner_of(program_, b.id) != b.id) continue;
      BufferPlan p;
      p.name = b.name;
      p.dtype = b.dtype;
      p.sizes = size_exprs(b.sizes);
      p.strides = size_exprs(b.strides);
      if (b.kind == BufferKind::constant) {
        p.storage = StorageKind::constant;
        p.index = static_cast<int>(executable_.constants.size());
        executable_.constants.push_back(b.constant);
      } else if (std::any_of(b.sizes.begin(), b.sizes.end(), [](SymInt s) { return has_unbacked(s); })) {
        p.storage = StorageKind::dynamic;
      }
      index_of_[b.id] = static_cast<int>(executable_.buffers.size());
      executable_.buffers.push_back(std::move(p));
    }
  }

  static std::string shown(SymInt dim) {
    return dim.is_constant() ? fmt::format("{}", dim.constant()) : to_string(dim);
  }

  runtime::SignatureEntry entry(const std::string& name, BufferId id) const {
    const Buffer& b = program_.at(id);
    runtime::SignatureEntry e{name, b.dtype, {}, size_exprs(b.sizes), index_of_[id]};
    for (SymInt s : b.sizes) e.dims.push_back(shown(s));
    return e;
  }

  void make_signature() {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const ProgramInput& in = program_.inputs[i];
      BufferPlan& p = executable_.buffers[index_of_[in.buffer]];
      p.storage = StorageKind::input;
      p.index = static_cast<int>(i);
      executable_.inputs.push_back(entry(in.name, in.buffer));
      const Buffer& b = program_.at(in.buffer);
      for (size_t d = 0; d < b.sizes.size(); ++d)
        if (!b.sizes[d].is_constant() && b.sizes[d].node()->kind == SymKind::symbol)
          executable_.bindings.push_back(
              {b.sizes[d].node()->number, static_cast<int>(i), static_cast<int>(d)});
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const ProgramOutput& out = program_.outputs[i];
      // It stays in the memory of a state.
      if (program_.at(ir::owner_of(program_, out.buffer)).kind == BufferKind::input) continue;
      BufferPlan& p = executable_.buffers[index_of_[out.buffer]];
      TBX_INTERNAL(p.storage == StorageKind::arena || p.storage == StorageKind::dynamic);
      p.storage = StorageKind::output;
      p.index = static_cast<int>(executable_.outputs.size());
      executable_.outputs.push_back(entry(out.name, out.buffer));
    }
  }

  // --- generated kernels

  void add_kernel(const fusion::Group& group, const KernelProgram& program,
                  const codegen::EmittedKernel* emitted) {
    runtime::KernelStep step;
    for (const KernelBuffer& b : program.buffers) {
      step.buffers.push_back(b.id < 0 ? -1 : index_of_[ir::owner_of(program_, b.id)]);
      step.writes.push_back(b.access != Access::read);
      step.offset_bytes.push_back(b.offset * size_of(b.dtype));
    }
    step.sequential = program.sequential;
    StepInfo info;
    if (emitted && !emitted->function.empty()) {
      step.name = emitted->function;
      step.size_args = size_exprs(emitted->size_args);
      step.check_origins = emitted->check_origins;
      step.tasks = size_expr(emitted->tasks);
      step.scratch_bytes = size_expr(emitted->scratch_bytes);
      step.state_bytes = size_expr(emitted->state_bytes);
      step.cost_per_task = emitted->cost_per_task;
      info.kind = "generated";
      bound_steps(group, program);
    } else {
      step.name = fmt::format("evaluated_{}", executable_.steps.size());
      step.tasks = size_expr(product(program.outer));
      step.scratch_bytes = step.state_bytes = size_expr(0);
      step.cost_per_task = 1000;
      info.kind = "evaluated";
      evaluated_.emplace_back(step.name, program);
    }
    info.name = step.name;
    info.origins = group.origins;
    info.decisions = group.decisions;
    measure(program, info);
    push({std::move(step), group.origins}, std::move(info));
  }

  /// Native code ends behind the results that it is at. What sums numbers that are in no memory, as those of
  /// Range and of what Expand repeats, has no other bound of its time.
  void bound_steps(const fusion::Group& group, const KernelProgram& program) {
    for (const ir::Phase& phase : program.phases) {
      const SymInt steps = product(phase.inner);
      if (steps.is_constant() && *steps.as_constant() <= kMostSteps) continue;
      if (std::ranges::any_of(program.buffers, [&](const KernelBuffer& b) {
            return b.id >= 0 && ir::provably_divisible(product(program_.at(b.id).sizes), steps);
          }))
        continue;
      executable_.checks.push_back(
          {size_expr(SymInt(kMostSteps) - steps), false,
           fmt::format("one result is computed of {} numbers, which no memory holds; {} are the most",
                       to_string(steps), kMostSteps),
           false, nodes_of(executable_, group.origins)});
    }
  }

  /// Saturates: what a model asks for is compared with the machine's memory in a run.
  static void add_bytes(StepInfo& info, SymInt numel, DType type) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(size_hint(numel), size_of(type), &bytes) ||
        __builtin_add_overflow(info.bytes, bytes, &info.bytes))
      info.bytes = INT64_MAX;
  }

  static void measure(const KernelProgram& program, StepInfo& info) {
    for (const KernelBuffer& b : program.buffers)
      if (b.access != Access::row_local) add_bytes(info, b.numel, b.dtype);
    for (const Phase& phase : program.phases) {
      std::vector<Expr> values;
      for (const Stmt& s : phase.stmts) values.push_back(s.value);
      SymInts sizes = program.outer;
      sizes.insert(sizes.end(), phase.inner.begin(), phase.inner.end());
      add_work(info, static_cast<double>(count(values).ops), sizes);
    }
    note_guesses(info);
    for (const KernelBuffer& b : program.buffers) info.guessed |= !b.numel.is_constant();
  }

  static void add_work(StepInfo& info, double each, const SymInts& sizes) {
    double flops = each;
    for (SymInt size : sizes) flops *= static_cast<double>(size_hint(size));
    info.flops += flops;
    info.work.push_back({each, size_exprs(sizes)});
  }

  static void note_guesses(StepInfo& info) {
    for (const runtime::NestWork& nest : info.work)
      for (const SizeExpr& size : nest.sizes) info.guessed |= !size.is_constant();
  }

  // --- extern calls

  runtime::OperandView view(const ExternOperand& in) const {
    runtime::OperandView v;
    if (in.buffer < 0) return v;
    const Buffer& b = program_.at(in.buffer);
    size_t r = b.sizes.size();
    v.buffer = index_of_[ir::owner_of(program_, in.buffer)];
    SymInt offset = slice_offset(b);
    for (size_t k = 0; k < r; ++k) offset += in.start[k] * b.strides[k];
    SymInts strides;
    for (size_t d = 0; d < in.sizes.size(); ++d) {
      SymInt s = 0;
      for (size_t k = 0; k < r; ++k) s += in.coefficients[d * r + k] * b.strides[k];
      strides.push_back(s);
    }
    v.sizes = size_exprs(in.sizes);
    v.strides = size_exprs(strides);
    v.offset = size_expr(offset);
    return v;
  }

  SymInt slice_offset(const Buffer& start) const {
    SymInt offset = 0;
    for (const Buffer* b = &start; b->slice_of >= 0 || b->overwrites >= 0;) {
      const Buffer& parent = program_.at(b->slice_of >= 0 ? b->slice_of : b->overwrites);
      for (size_t k = 0; k < b->slice_start.size(); ++k) offset += b->slice_start[k] * parent.strides[k];
      b = &parent;
    }
    return offset;
  }

  void add_extern(const fusion::Group& group, const ExternCall& call) {
    runtime::ExternStep step;
    step.problem = call.problem;
    for (const ExternOperand& in : call.inputs) step.inputs.push_back(view(in));
    for (BufferId id : call.outputs) {
      runtime::OperandView v;
      if (id >= 0) {
        const Buffer& b = program_.at(id);
        const BufferId owner = ir::owner_of(program_, id);
        TBX_INTERNAL(program_.at(owner).dtype == b.dtype);
        const SymInts& sizes = call.output_sizes.empty() ? b.sizes : call.output_sizes;
        v.buffer = index_of_[owner];
        v.sizes = size_exprs(sizes);
        v.strides = size_exprs(call.output_sizes.empty() ? b.strides : contiguous_strides(sizes));
        v.offset = size_expr(slice_offset(b));
        if (!call.output_symbols.empty()) add_dynamic(step, b, call.output_symbols);
      }
      step.outputs.push_back(std::move(v));
    }
    StepInfo info;
    info.name = extern_kernels::name_of(call.problem);
    info.kind = "extern";
    info.origins = group.origins;
    info.decisions = group.decisions;
    const auto* attention = std::get_if<extern_kernels::AttentionProblem>(&call.problem);
    const bool carries = attention && attention->carries; // it does not read what it writes of the caches
    for (const auto* buffers : {&group.reads, &group.writes})
      for (BufferId b : *buffers)
        if (!carries || buffers == &group.reads || b == call.outputs[0])
          add_bytes(info, product(program_.at(b).sizes), program_.at(b).dtype);
    for (const auto* buffers : {&group.reads, &group.writes})
      for (BufferId b : *buffers) info.guessed |= !product(program_.at(b).sizes).is_constant();
    for (const CallWork& nest : work_of(program_, call)) add_work(info, nest.each, nest.sizes);
    note_guesses(info);
    push({std::move(step), group.origins}, std::move(info));
  }

  /// `made`: the sizes that this call finds. Others of the buffer may be what a call before has found.
  void add_dynamic(runtime::ExternStep& step, const Buffer& b, const SymInts& made) const {
    step.dynamic_outputs.push_back(index_of_[b.id]);
    std::vector<int> dims;
    for (SymInt s : b.sizes) {
      const bool bound = std::find(made.begin(), made.end(), s) != made.end();
      dims.push_back(bound ? s.node()->number : -1);
      if (bound) step.bound_symbols.push_back(s.node()->number);
    }
    step.dynamic_dims.push_back(std::move(dims));
  }

  void push(runtime::Step step, StepInfo info) {
    executable_.steps.push_back(std::move(step));
    steps_.push_back(std::move(info));
  }

  const fusion::Schedule& schedule_;
  const Program& program_;
  const std::vector<codegen::EmittedKernel>& emitted_;
  runtime::Executable executable_;
  std::vector<StepInfo> steps_;
  std::vector<NamedKernel> evaluated_;
  std::vector<int> index_of_;
};

} // namespace

void set_lifetimes(runtime::Executable& executable) {
  for (BufferPlan& b : executable.buffers) b.first_step = b.last_step = -1;
  for (size_t s = 0; s < executable.steps.size(); ++s)
    runtime::for_each_buffer(executable.steps[s], [&](int buffer, bool) {
      BufferPlan& b = executable.buffers[buffer];
      if (b.first_step < 0) b.first_step = static_cast<int>(s);
      b.last_step = static_cast<int>(s);
    });
}

runtime::SizeExpr size_expr(SymInt e) {
  SizeExpr out;
  append(out, e);
  if (const auto& budget = current_budget())
    budget->take(static_cast<int64_t>(out.items.size() * sizeof(SizeExpr::Item)));
  return out;
}

PlanResult make_plan(const fusion::Schedule& schedule, const std::vector<codegen::EmittedKernel>& emitted) {
  return PlanMaker(schedule, emitted).run();
}

} // namespace tbx::driver
