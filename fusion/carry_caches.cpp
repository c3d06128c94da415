#include "fusion/carry_caches.h"

#include <algorithm>
#include <optional>

#include "fusion/dependencies.h"
#include "fusion/whole_operand.h"
#include "ir/owner.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::AttentionProblem;

bool copies_to_start(const Program& program, const Operation& op, BufferId from, BufferId whole) {
  const auto* compute = std::get_if<Compute>(&op.what);
  if (!compute || compute->loops.kind != LoopKind::pointwise) return false;
  const Buffer& part = program.at(compute->output);
  if (part.slice_of != whole) return false;
  if (!std::all_of(part.slice_start.begin(), part.slice_start.end(), [](SymInt s) { return s.is(0); }))
    return false;
  const Expr body = compute->loops.body;
  if (body->op != Op::load || body->buffer != from || body->mask()) return false;
  for (size_t d = 0; d < body->indices.size(); ++d)
    if (body->indices[d] != program.context->var(static_cast<int>(d)) && !part.sizes[d].is(1)) return false;
  return true;
}

namespace {

class Caches {
public:
  explicit Caches(Program& program) : program_(program), gone_(program.operations.size(), false) {}

  void run() {
    for (size_t i = 0; i < program_.operations.size(); ++i)
      if (auto* call = std::get_if<ExternCall>(&program_.operations[i].what))
        if (auto* problem = std::get_if<AttentionProblem>(&call->problem)) take_copies(i, *call, *problem);
    remove_operations(program_, gone_);
  }

private:
  struct Copy {
    size_t operation;
    BufferId from, to;
  };

  void take_copies(size_t at, ExternCall& call, AttentionProblem& problem) {
    if (call.outputs.size() != 1 || call.inputs[1].buffer == call.inputs[2].buffer) return;
    const std::optional<Copy> keys = copy_into(call.inputs[1], at), values = copy_into(call.inputs[2], at);
    if (!keys || !values || !provably_equal(program_.at(keys->to).sizes[2], program_.at(values->to).sizes[2]))
      return;
    call.inputs.resize(AttentionProblem::kCacheKeys);
    for (const Copy& copy : {*keys, *values}) {
      call.inputs.push_back(whole(program_, copy.from));
      call.outputs.push_back(copy.to);
      gone_[copy.operation] = true;
      std::vector<int>& origins = program_.operations[at].origins;
      const std::vector<int>& others = program_.operations[copy.operation].origins;
      origins.insert(origins.end(), others.begin(), others.end());
    }
    problem.carries = true;
    program_.operations[at].reason += "; copies the caches that it reads into those of the next step";
  }

  /// The copy of an input to the first tokens of what the operand of operation `at` shows, an output of the
  /// model. Nobody else reads that before.
  std::optional<Copy> copy_into(const ExternOperand& operand, size_t at) const {
    const BufferId shown = operand.buffer;
    if (shown < 0 || !is_output(shown) || !is_whole(program_, operand)) return std::nullopt;
    const SymInts& all = program_.at(shown).sizes;
    std::optional<Copy> found;
    for (size_t i = 0; i < at; ++i) {
      const Operation& op = program_.operations[i];
      if (gone_[i]) continue;
      if (found) {
        const OpAccess access = access_of(program_, op);
        if (std::count(access.reads.begin(), access.reads.end(), shown) > 0) return std::nullopt;
      }
      const auto* compute = std::get_if<Compute>(&op.what);
      if (!compute || program_.at(compute->output).slice_of != shown) continue;
      for (const ProgramInput& in : program_.inputs) {
        if (program_.at(in.buffer).dtype != program_.at(shown).dtype ||
            !copies_to_start(program_, op, in.buffer, shown))
          continue;
        const BufferId to = compute->output;
        const SymInts &part = program_.at(to).sizes, &from = program_.at(in.buffer).sizes;
        bool fits = !found && from.size() == part.size();
        for (size_t d = 0; fits && d < part.size(); ++d)
          fits = provably_equal(from[d], part[d]) && (d == 2 || provably_equal(part[d], all[d]));
        if (!fits) return std::nullopt;
        found = Copy{i, in.buffer, to};
      }
    }
    return found;
  }

  bool is_output(BufferId id) const {
    return std::any_of(program_.outputs.begin(), program_.outputs.end(),
                       [&](const ProgramOutput& out) { return out.buffer == id; });
  }

  Program& program_;
  std::vector<bool> gone_; ///< by operation
};

} // namespace

void carry_caches(Program& program) { Caches(program).run(); }

} // namespace tbx::fusion
