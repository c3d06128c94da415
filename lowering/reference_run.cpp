// Runs each operation of a program as a kernel of its own over row-major buffers.
#include "lowering/reference_run.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/random_streams.h"
#include "base/strided_copy.h"
#include "ir/kernel.h"
#include "ir/merge_loops.h"
#include "ir/nest_kernel.h"
#include "ir/owner.h"

namespace tbx::lowering {
namespace {

using namespace ir;

class Runner {
public:
  Runner(const Program& program, const ExternFn& run_extern)
      : program_(program), run_extern_(run_extern), c_(*program.context), memory_(program.buffers.size()),
        symbols_(c_.symbols().size(), -1) {}

  std::vector<Tensor> run(std::vector<Tensor> inputs);

private:
  void bind_input(const Buffer& buffer, const Tensor& tensor);
  void bind_sizes(const SymInts& sizes, const std::vector<int64_t>& dims);
  void check_conditions();
  int64_t value(SymInt e, const char* what) const;
  std::vector<int64_t> dims_of(const Buffer& buffer) const;
  void* memory(BufferId id);

  SymInt address(BufferId id, const SymInts& indices) const;
  int kernel_buffer(KernelProgram& kernel, BufferId id, Access access);
  Expr resolve(KernelProgram& kernel, Expr e);
  SymInt resolve(KernelProgram& kernel, SymInt e);
  void execute(KernelProgram& kernel);
  bool only_moves(const Compute& compute);
  void run_compute(const Compute& compute);
  void run_scatter(const Scatter& scatter);
  ExternArgument argument(const ExternOperand& operand);
  void run_extern(const ExternCall& call);

  const Program& program_;
  const ExternFn& run_extern_;
  Context& c_;
  std::vector<Tensor> memory_;
  std::vector<int64_t> symbols_;
};

int64_t Runner::value(SymInt e, const char* what) const {
  auto v = evaluate(e, symbols_);
  TBX_MODEL(v.has_value(), "{} {} overflows", what, to_string(e));
  return *v;
}

std::vector<int64_t> Runner::dims_of(const Buffer& buffer) const {
  std::vector<int64_t> dims;
  for (SymInt s : buffer.sizes) dims.push_back(value(s, "size"));
  return dims;
}

/// Binds the symbols that stand alone as a dimension; other sizes are compared once all inputs are seen.
void Runner::bind_input(const Buffer& buffer, const Tensor& tensor) {
  TBX_MODEL(tensor.dtype == buffer.dtype, "input '{}' is of type {}, expected {}", buffer.name,
            name_of(tensor.dtype), name_of(buffer.dtype));
  TBX_MODEL(tensor.dims.size() == buffer.sizes.size(), "input '{}' is of rank {}, expected {}", buffer.name,
            tensor.dims.size(), buffer.sizes.size());
  bind_sizes(buffer.sizes, tensor.dims);
}

void Runner::bind_sizes(const SymInts& sizes, const std::vector<int64_t>& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    const SymNode* node = sizes[d].node();
    if (node && node->kind == SymKind::symbol && symbols_[node->number] < 0) symbols_[node->number] = dims[d];
  }
}

void Runner::check_conditions() {
  for (const Check& check : program_.checks) {
    bool unbound = false;
    visit(check.value,
          [&](const SymNode& n) { unbound |= n.kind == SymKind::symbol && symbols_[n.number] < 0; });
    if (unbound) continue;
    int64_t v = value(check.value, "check");
    TBX_MODEL(check.equal ? v == 0 : v >= 0, "{}", check.message);
  }
}

void* Runner::memory(BufferId id) {
  const Buffer& b = program_.at(id);
  if (b.kind == BufferKind::constant) return const_cast<std::byte*>(b.constant->data);
  Tensor& t = memory_[id];
  if (!t.data) t = Tensor::make(b.dtype, dims_of(b));
  return t.mutable_data();
}

SymInt Runner::address(BufferId id, const SymInts& indices) const {
  const Buffer* b = &program_.at(id);
  SymInts at = indices;
  for (; b->slice_of >= 0 || b->overwrites >= 0;
       b = &program_.at(b->slice_of >= 0 ? b->slice_of : b->overwrites))
    if (b->slice_of >= 0)
      for (size_t k = 0; k < at.size(); ++k) at[k] += b->slice_start[k];
  SymInts strides = contiguous_strides(b->sizes);
  SymInt out = 0;
  for (size_t k = 0; k < at.size(); ++k) out += at[k] * strides[k];
  return out;
}

int Runner::kernel_buffer(KernelProgram& kernel, BufferId id, Access access) {
  id = owner_of(program_, id);
  for (size_t i = 0; i < kernel.buffers.size(); ++i)
    if (kernel.buffers[i].id == id) {
      if (kernel.buffers[i].access != access) kernel.buffers[i].access = Access::read_write;
      return static_cast<int>(i);
    }
  const Buffer& b = program_.at(id);
  kernel.buffers.push_back({id, b.dtype, access, product(b.sizes)});
  return static_cast<int>(kernel.buffers.size()) - 1;
}

/// Loads get the kernel's buffer numbers and linear addresses.
Expr Runner::resolve(KernelProgram& kernel, Expr e) {
  if (!e) return nullptr;
  return rewrite(e, [&](Expr n) {
    if (n->op != Op::load) return n;
    int b = kernel_buffer(kernel, n->buffer, Access::read);
    return c_.load(b, n->dtype, {address(n->buffer, n->indices)}, n->mask());
  });
}

/// The same inside the indirect values of an index: carried through an expression, where rewriting reaches
/// them.
SymInt Runner::resolve(KernelProgram& kernel, SymInt e) {
  if (!has_indirect(e)) return e;
  Expr resolved = resolve(kernel, c_.index(e));
  TBX_INTERNAL(resolved->op == Op::index);
  return resolved->indices[0];
}

void Runner::execute(KernelProgram& kernel) {
  std::vector<void*> buffers;
  for (const KernelBuffer& b : kernel.buffers) buffers.push_back(memory(b.id));
  int64_t points = 1;
  for (SymInt s : kernel.outer) points *= value(s, "loop extent");
  if (points > 0) evaluate_kernel(kernel, buffers, symbols_, 0, points);
}

/// Elements that lie at constant steps in one buffer are copied; false: it is something else.
bool Runner::only_moves(const Compute& compute) {
  const Loops& loops = compute.loops;
  const Expr load = loops.body;
  const Buffer& to = program_.at(compute.output);
  if (loops.kind != LoopKind::pointwise || load->op != Op::load || load->mask() || to.slice_of >= 0 ||
      to.overwrites >= 0)
    return false;
  const BufferId owner = owner_of(program_, load->buffer);
  const Buffer& from = program_.at(owner);
  if (owner == compute.output || from.dtype != to.dtype || load->dtype != to.dtype ||
      loops.dtype != to.dtype || size_of(to.dtype) > 8)
    return false;
  SymInt at = address(load->buffer, load->indices);
  std::vector<int64_t> sizes, steps;
  for (size_t k = 0; k < loops.ranges.size(); ++k) {
    const auto affine = affine_in(at, c_.var(static_cast<int>(k)).node());
    if (!affine || !affine->coefficient.is_constant() || !loops.ranges[k].is_constant()) return false;
    sizes.push_back(*loops.ranges[k].as_constant());
    steps.push_back(*affine->coefficient.as_constant());
    at = affine->rest;
  }
  const auto elements = product(from.sizes).as_constant();
  if (!at.is_constant() || !elements) return false;
  int64_t least = *at.as_constant(), most = least;
  for (size_t k = 0; k < sizes.size(); ++k)
    (steps[k] < 0 ? least : most) += steps[k] * std::max<int64_t>(0, sizes[k] - 1);
  if (least < 0 || most >= *elements) return false;
  const auto* first = static_cast<const std::byte*>(memory(owner)) + *at.as_constant() * size_of(to.dtype);
  copy_strided(first, sizes, steps, size_of(to.dtype), static_cast<std::byte*>(memory(compute.output)));
  return true;
}

void Runner::run_compute(const Compute& compute) {
  if (only_moves(compute)) return;
  KernelProgram kernel;
  kernel.context = program_.context;
  add_nest(kernel, compute.loops,
           {[&](Expr e) { return resolve(kernel, e); },
            [&] { return kernel_buffer(kernel, compute.output, Access::write); },
            [&](const SymInts& at) { return address(compute.output, at); }});
  merge_loops(kernel, {}); // the evaluator takes a row at a time, and filters have rows of three
  execute(kernel);
}

void Runner::run_scatter(const Scatter& scatter) {
  KernelProgram kernel;
  kernel.context = program_.context;
  kernel.outer = scatter.ranges;
  kernel.sequential = true;
  SymInts indices;
  for (SymInt i : scatter.indices) indices.push_back(resolve(kernel, i));
  int target = kernel_buffer(kernel, scatter.target, Access::read_write);
  Stmt s;
  s.kind = StmtKind::store;
  s.buffer = target;
  s.address = address(scatter.target, indices);
  s.value = resolve(kernel, scatter.value);
  s.mask = resolve(kernel, scatter.mask);
  s.mode = scatter.mode;
  kernel.phases.push_back({{}, {s}});
  execute(kernel);
}

ExternArgument Runner::argument(const ExternOperand& operand) {
  ExternArgument out;
  if (operand.buffer < 0) return out;
  size_t rank = program_.at(operand.buffer).sizes.size();
  SymInts start = operand.start;
  auto* bytes = static_cast<std::byte*>(memory(owner_of(program_, operand.buffer)));
  out.dtype = program_.at(operand.buffer).dtype;
  int64_t first = value(address(operand.buffer, start), "address");
  out.data = bytes + first * size_of(out.dtype);
  for (size_t d = 0; d < operand.sizes.size(); ++d) {
    out.sizes.push_back(value(operand.sizes[d], "size"));
    SymInts next = start;
    for (size_t k = 0; k < rank; ++k) next[k] += operand.coefficients[d * rank + k];
    out.strides.push_back(value(address(operand.buffer, next), "address") - first);
  }
  return out;
}

void Runner::run_extern(const ExternCall& call) {
  if (!run_extern_) throw_unsupported("an extern call in a reference run");
  std::vector<ExternArgument> inputs, outputs;
  for (const ExternOperand& operand : call.inputs) inputs.push_back(argument(operand));
  if (call.output_symbols.empty()) {
    for (BufferId id : call.outputs) {
      const Buffer& b = program_.at(id);
      ExternOperand whole{id, b.sizes, SymInts(b.sizes.size() * b.sizes.size(), 0),
                          SymInts(b.sizes.size(), 0)};
      for (size_t d = 0; d < b.sizes.size(); ++d) whole.coefficients[d * b.sizes.size() + d] = 1;
      outputs.push_back(argument(whole));
    }
    run_extern_(call, inputs, outputs);
    return;
  }
  std::vector<Tensor> made = run_extern_(call, inputs, {});
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Buffer& b = program_.at(call.outputs[i]);
    bind_sizes(b.sizes, made.at(i).dims);
    TBX_MODEL(dims_of(b) == made[i].dims, "a kernel made an output of another shape than promised");
    memory_[b.id] = std::move(made[i]);
  }
}

std::vector<Tensor> Runner::run(std::vector<Tensor> inputs) {
  TBX_MODEL(inputs.size() == program_.inputs.size(), "{} inputs given, {} expected", inputs.size(),
            program_.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) bind_input(program_.at(program_.inputs[i].buffer), inputs[i]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Buffer& b = program_.at(program_.inputs[i].buffer);
    TBX_MODEL(dims_of(b) == inputs[i].dims, "input '{}' does not have the expected shape", b.name);
    memory_[b.id] = std::move(inputs[i]);
  }
  check_conditions();
  for (const Operation& op : program_.operations) {
    if (const auto* compute = std::get_if<Compute>(&op.what))
      run_compute(*compute);
    else if (const auto* scatter = std::get_if<Scatter>(&op.what))
      run_scatter(*scatter);
    else
      run_extern(std::get<ExternCall>(op.what));
  }
  std::vector<Tensor> outputs;
  for (const ProgramOutput& output : program_.outputs) {
    memory(output.buffer);
    outputs.push_back(memory_[output.buffer]);
  }
  return outputs;
}

} // namespace

std::vector<Tensor> run_program(const Program& program, std::vector<Tensor> inputs,
                                const ExternFn& run_extern) {
  RandomStreams first_run(0);
  RandomScope random(current_streams() ? nullptr : &first_run);
  return Runner(program, run_extern).run(std::move(inputs));
}

} // namespace tbx::lowering
