#include "fusion/append_caches.h"

#include <algorithm>
#include <optional>

#include "extern_kernels/cuda/select.h"
#include "fusion/dependencies.h"
#include "fusion/operand_infos.h"
#include "fusion/whole_operand.h"
#include "ir/owner.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::AttentionProblem;

namespace {

constexpr size_t kNew = AttentionProblem::kCacheKeys;
constexpr size_t kTokens = 2;

class Appends {
public:
  explicit Appends(Program& program)
      : program_(program), deps_(analyse(program)), gone_(program.operations.size(), false) {}

  void run() {
    for (size_t i = 0; i < program_.operations.size(); ++i)
      if (auto* call = std::get_if<ExternCall>(&program_.operations[i].what))
        if (std::holds_alternative<AttentionProblem>(call->problem)) take(i, *call);
    remove_operations(program_, gone_);
  }

private:
  struct Append {
    size_t operation;
    BufferId part;                     ///< of the state, which it writes
    std::optional<ExternOperand> from; ///< what it copies; none: it computes
  };

  void take(size_t at, ExternCall& call) {
    const auto& problem = std::get<AttentionProblem>(call.problem);
    if (call.outputs.size() != 1 || problem.carries || problem.has_starts ||
        !call.inputs[0].sizes[kTokens].is(1))
      return;
    const std::optional<Append> keys = append_to(call.inputs[1], at), values = append_to(call.inputs[2], at);
    if (!keys || !values) return;
    ExternCall appending = call;
    std::get<AttentionProblem>(appending.problem).appends = true;
    appending.inputs.resize(kNew);
    for (const Append& append : {*keys, *values}) {
      appending.inputs.push_back(append.from ? *append.from : whole(program_, append.part));
      appending.outputs.push_back(append.part);
    }
    const auto [inputs, outputs] = operand_infos(program_, appending, program_.at(call.outputs[0]).sizes);
    if (!extern_kernels::appends_on_gpu(inputs, outputs)) return;
    for (size_t i : {0, 1}) {
      const Append& append = i == 0 ? *keys : *values;
      if (!append.from) appending.inputs[kNew + i] = whole(program_, moved(append));
      if (append.from) gone_[append.operation] = true;
      std::vector<int>& origins = program_.operations[at].origins;
      const std::vector<int>& others = program_.operations[append.operation].origins;
      origins.insert(origins.end(), others.begin(), others.end());
    }
    call = std::move(appending);
    program_.operations[at].reason += "; appends to the state";
  }

  /// What is computed for the state goes into memory of its own.
  BufferId moved(const Append& append) {
    const DType dtype = program_.at(append.part).dtype;
    SymInts sizes = program_.at(append.part).sizes;
    const BufferId id = program_.new_buffer({}, dtype, sizes);
    program_.at(id).strides = contiguous_strides(sizes);
    std::get<Compute>(program_.operations[append.operation].what).output = id;
    return id;
  }

  /// The operation that writes the last token of what the operand of operation `at` shows: all of a state,
  /// with which nobody else has to do.
  std::optional<Append> append_to(const ExternOperand& operand, size_t at) const {
    const BufferId shown = operand.buffer;
    if (shown < 0 || !is_whole(program_, operand) || program_.at(shown).slice_of < 0) return std::nullopt;
    const BufferId state = owner_of(program_, shown);
    const std::vector<int>&readers = deps_.readers[state], &writers = deps_.writers[state];
    if (program_.at(state).kind != BufferKind::input || writers.size() != 1 || readers.size() != 1 ||
        readers[0] != static_cast<int>(at) || writers[0] > readers[0])
      return std::nullopt;
    const auto operation = static_cast<size_t>(writers[0]);
    const auto* compute = std::get_if<Compute>(&program_.operations[operation].what);
    if (!compute || compute->loops.kind != LoopKind::pointwise) return std::nullopt;
    const Buffer &part = program_.at(compute->output), &all = program_.at(shown);
    if (part.slice_of != shown) return std::nullopt;
    for (size_t d = 0; d < part.sizes.size(); ++d) {
      const bool fits = d == kTokens
                            ? part.sizes[d].is(1) && provably_equal(part.slice_start[d] + 1, all.sizes[d])
                            : part.slice_start[d].is(0) && provably_equal(part.sizes[d], all.sizes[d]);
      if (!fits) return std::nullopt;
    }
    return Append{operation, compute->output, source_of(*compute)};
  }

  /// What the operation copies; rounding is the business of who stores.
  std::optional<ExternOperand> source_of(const Compute& compute) const {
    Expr body = compute.loops.body;
    if (body->op == Op::round_to && body->format == program_.at(compute.output).dtype) body = body->args[0];
    if (body->op != Op::load || body->mask()) return std::nullopt;
    const BufferId id = body->buffer;
    if (owner_of(program_, id) != id || deps_.writers[id].size() > 1) return std::nullopt;
    const size_t rank = compute.loops.ranges.size(), buffer_rank = body->indices.size();
    ExternOperand from{id, compute.loops.ranges, SymInts(rank * buffer_rank, SymInt(0)), body->indices};
    for (size_t k = 0; k < buffer_rank; ++k)
      for (size_t d = 0; d < rank; ++d) {
        const SymInt var = program_.context->var(static_cast<int>(d));
        if (compute.loops.ranges[d].is(1)) continue; // its index is 0
        const std::optional<Affine> affine = affine_in(from.start[k], var.node());
        if (!affine) return std::nullopt;
        from.coefficients[d * buffer_rank + k] = affine->coefficient;
        from.start[k] = affine->rest;
      }
    return from;
  }

  Program& program_;
  Dependencies deps_;
  std::vector<bool> gone_; ///< by operation
};

} // namespace

void append_caches(Program& program) { Appends(program).run(); }

} // namespace tbx::fusion
