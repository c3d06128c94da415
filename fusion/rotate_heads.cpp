#include "fusion/rotate_heads.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "extern_kernels/cuda/select.h"
#include "fusion/dependencies.h"
#include "fusion/head_rotation.h"
#include "fusion/operand_infos.h"
#include "fusion/whole_operand.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::AttentionProblem;

namespace {

constexpr size_t kKeys = AttentionProblem::kCacheKeys;

class Rotations {
public:
  explicit Rotations(Program& program)
      : program_(program), deps_(analyse(program)), gone_(program.operations.size(), false),
        before_(program.operations.size()) {}

  void run() {
    for (size_t i = 0; i < gone_.size(); ++i)
      if (auto* call = std::get_if<ExternCall>(&program_.operations[i].what))
        if (std::holds_alternative<AttentionProblem>(call->problem)) take(i, *call);
    if (std::find(gone_.begin(), gone_.end(), true) == gone_.end()) return;
    std::vector<Operation> kept;
    for (size_t i = 0; i < gone_.size(); ++i) {
      std::move(before_[i].begin(), before_[i].end(), std::back_inserter(kept));
      if (!gone_[i]) kept.push_back(std::move(program_.operations[i]));
    }
    program_.operations = std::move(kept);
    remove_dead_operations(program_); // parts of heads that were joined to be rotated
  }

private:
  /// Cosines or sines as the call reads them, and what puts them there where nobody else does.
  struct Numbers {
    ExternOperand operand;
    std::optional<Compute> made;
  };

  void take(size_t at, ExternCall& call) {
    const auto& problem = std::get<AttentionProblem>(call.problem);
    if (!problem.appends || problem.rotation.width != 0) return;
    if (!is_private(call.inputs[0], at) || !is_private(call.inputs[kKeys], at)) return;
    const auto queries = find_head_rotation(program_, deps_, call.inputs[0]);
    if (!queries) return;
    const auto keys = find_head_rotation(program_, deps_, call.inputs[kKeys]);
    if (!keys || queries->rotation != keys->rotation || queries->cosines != keys->cosines ||
        queries->sines != keys->sines || queries->count != keys->count)
      return;
    ExternCall rotating = call;
    extern_kernels::HeadRotation& rotation = std::get<AttentionProblem>(rotating.problem).rotation;
    rotation = queries->rotation;
    rotation.queries = queries->result, rotation.keys = keys->result;
    rotating.inputs[0] = queries->x, rotating.inputs[kKeys] = keys->x;
    const SymInt batch = call.inputs[0].sizes[0];
    const Numbers both[] = {numbers_of(queries->cosines, queries->count, batch),
                            numbers_of(queries->sines, queries->count, batch)};
    for (const Numbers& n : both) rotating.inputs.push_back(n.operand);
    const auto [inputs, outputs] = operand_infos(program_, rotating, program_.at(call.outputs[0]).sizes);
    if (!extern_kernels::appends_on_gpu(inputs, outputs)) return;
    std::vector<int> operations = queries->operations;
    operations.insert(operations.end(), keys->operations.begin(), keys->operations.end());
    const int first = *std::min_element(operations.begin(), operations.end());
    for (const Numbers& n : both)
      if (n.made) add(*n.made, first);
    for (int op : operations) take_over(at, op);
    call = std::move(rotating);
    program_.operations[at].reason += "; rotates queries and the new key";
  }

  void take_over(size_t at, int op) {
    gone_[op] = true;
    std::vector<int>& origins = program_.operations[at].origins;
    const std::vector<int>& others = program_.operations[op].origins;
    origins.insert(origins.end(), others.begin(), others.end());
  }

  void add(const Compute& numbers, int first) {
    made_[numbers.loops.body] = numbers.output;
    before_[first].push_back(
        {numbers, program_.operations[first].origins, "angles of a rotation, for all of its heads"});
  }

  /// Nobody but operation `at` reads the memory.
  bool is_private(const ExternOperand& operand, size_t at) const {
    const BufferId id = operand.buffer;
    return id >= 0 && owner_of(program_, id) == id && !deps_.is_output[id] && deps_.readers[id].size() == 1 &&
           deps_.readers[id][0] == static_cast<int>(at);
  }

  Numbers numbers_of(const TurnNumbers& numbers, int64_t count, SymInt batch) {
    const SymInts& indices = numbers.first->indices;
    const SymNode* entry = program_.context->var(0).node();
    const bool by_entry =
        std::any_of(indices.begin(), indices.end(), [&](SymInt i) { return depends_on(i, entry); });
    const SymInts sizes = {by_entry ? batch : SymInt(1), count};
    const size_t rank = indices.size();
    ExternOperand operand{numbers.first->buffer, sizes, SymInts(2 * rank, SymInt(0)), indices};
    for (size_t k = 0; k < rank; ++k) {
      const auto affine = affine_in(indices[k], entry);
      if (!affine || has_indirect(indices[k])) return in_memory(numbers, sizes);
      operand.coefficients[k] = affine->coefficient;
      operand.start[k] = affine->rest;
    }
    operand.coefficients[rank + numbers.along] = numbers.step;
    return {std::move(operand), std::nullopt};
  }

  /// What is found by position is gathered once.
  Numbers in_memory(const TurnNumbers& numbers, const SymInts& sizes) {
    const Expr first = numbers.first;
    SymInts indices = first->indices;
    indices[numbers.along] += program_.context->var(1) * SymInt(numbers.step);
    const Expr body = program_.context->load(first->buffer, first->dtype, indices);
    if (const auto known = made_.find(body); known != made_.end()) {
      if (program_.at(known->second).sizes == sizes) return {whole(program_, known->second), std::nullopt};
    }
    const DType dtype = program_.at(first->buffer).dtype;
    const BufferId id = program_.new_buffer({}, dtype, sizes);
    program_.at(id).strides = contiguous_strides(sizes);
    Loops loops;
    loops.ranges = sizes;
    loops.body = body;
    loops.dtype = dtype;
    return {whole(program_, id), Compute{std::move(loops), id}};
  }

  Program& program_;
  Dependencies deps_;
  std::vector<bool> gone_;                     ///< by operation
  std::vector<std::vector<Operation>> before_; ///< by operation: what is new there
  std::map<Expr, BufferId> made_;
};

} // namespace

void rotate_heads(Program& program) { Rotations(program).run(); }

} // namespace tbx::fusion
