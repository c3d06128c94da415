#include "fusion/in_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/post_ops.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::PostOp;

namespace {

class InPlace {
public:
  InPlace(Program& program, const Dependencies& deps, std::vector<Draft>& drafts, const Target& target)
      : program_(program), deps_(deps), drafts_(drafts), target_(target),
        position_(program.operations.size(), 0), has_parts_(program.buffers.size(), false),
        taken_over_(program.buffers.size(), false) {
    for (size_t d = 0; d < drafts.size(); ++d)
      for (const Member& m : drafts[d].members) position_[m.op] = static_cast<int>(d);
    for (const Buffer& b : program.buffers)
      for (BufferId parent : {b.slice_of, b.overwrites})
        if (parent >= 0) has_parts_[parent] = true;
  }

  void run() {
    for (Draft& draft : drafts_)
      if (auto* call = std::get_if<ExternCall>(&program_.operations[draft.members.front().op].what))
        try_sum(draft, *call);
  }

private:
  void try_sum(Draft& draft, ExternCall& call) {
    PostOp* op = first_post_op(call);
    if (!op || op->kind != PostOp::add || op->operand < 0 || call.outputs.size() != 1) return;
    const ExternOperand& operand = call.inputs[op->operand];
    BufferId old = operand.buffer, result = call.outputs[0];
    if (old < 0 || !is_plain(old) || !is_plain(result)) return;
    if (program_.at(old).dtype != program_.at(result).dtype) return;
    if (!dies_at(old, draft.members.front().op) || !same_place(operand, call)) return;
    auto reads_it = [&](const ExternOperand& in) { return in.buffer == old; };
    if (std::count_if(call.inputs.begin(), call.inputs.end(), reads_it) != 1) return;
    op->kind = PostOp::sum;
    // Libraries may have a fast kernel for an operand that they add and none for a sum.
    const SymInts& sizes = call.output_sizes.empty() ? program_.at(result).sizes : call.output_sizes;
    if (!target_.cuda && !refused_as_a_whole(program_, call, sizes, target_).empty()) {
      op->kind = PostOp::add;
      return;
    }
    program_.at(result).overwrites = old;
    taken_over_[result] = true;
    draft.decisions.push_back("the added tensor is not read afterwards: the result takes its memory");
  }

  /// Of a call that has one and more than one row: products of one row have a kernel of their own, which
  /// knows no sums.
  static PostOp* first_post_op(ExternCall& call) {
    if (auto* conv = std::get_if<extern_kernels::ConvProblem>(&call.problem))
      return conv->transposed || conv->post_ops.empty() ? nullptr : &conv->post_ops.front();
    auto* matmul = std::get_if<extern_kernels::MatMulProblem>(&call.problem);
    if (!matmul || matmul->post_ops.empty()) return nullptr;
    const SymInts& a = call.inputs[0].sizes;
    bool one_row = std::all_of(a.begin(), a.end() - 1, [](SymInt s) { return s.is(1); });
    return one_row ? nullptr : &matmul->post_ops.front();
  }

  /// Memory of its own that the run may reuse, of a size known before the run.
  bool is_plain(BufferId id) const {
    const Buffer& b = program_.at(id);
    return b.kind == BufferKind::computed && (b.dtype == DType::f32 || is_half(b.dtype)) && b.slice_of < 0 &&
           (b.overwrites < 0 || taken_over_[id]) && !has_parts_[id] && !deps_.is_output[id] &&
           deps_.writers[id].size() == 1 &&
           std::none_of(b.sizes.begin(), b.sizes.end(), [](SymInt s) { return has_unbacked(s); });
  }

  /// `op` is the last to read the buffer in the order of the drafts.
  bool dies_at(BufferId id, int op) const {
    return std::all_of(deps_.readers[id].begin(), deps_.readers[id].end(),
                       [&](int r) { return r == op || position_[r] < position_[op]; });
  }

  /// The operand shows, element by element, the places the result is written to.
  bool same_place(const ExternOperand& operand, const ExternCall& call) const {
    const Buffer &from = program_.at(operand.buffer), &to = program_.at(call.outputs[0]);
    const SymInts& sizes = call.output_sizes.empty() ? to.sizes : call.output_sizes;
    const SymInts strides = call.output_sizes.empty() ? to.strides : contiguous_strides(sizes);
    size_t r = from.sizes.size();
    if (operand.sizes.size() != sizes.size() || !provably_equal(product(from.sizes), product(to.sizes)))
      return false;
    for (SymInt s : operand.start)
      if (!s.is(0)) return false;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (!provably_equal(operand.sizes[d], sizes[d])) return false;
      if (sizes[d].is(1)) continue; // no step is made
      SymInt stride = 0;
      for (size_t k = 0; k < r; ++k) stride += operand.coefficients[d * r + k] * from.strides[k];
      if (!provably_equal(stride, strides[d])) return false;
    }
    return true;
  }

  Program& program_;
  const Dependencies& deps_;
  std::vector<Draft>& drafts_;
  const Target& target_;
  std::vector<int> position_;    ///< of the draft an operation is in
  std::vector<bool> has_parts_;  ///< other buffers are bound to it
  std::vector<bool> taken_over_; ///< overwrites what a residual was
};

} // namespace

void add_in_place(Program& program, const Dependencies& deps, std::vector<Draft>& drafts,
                  const Target& target) {
  InPlace(program, deps, drafts, target).run();
}

} // namespace tbx::fusion
