// Replay: the values of one program as boxes of another, made when somebody asks for them.
#pragma once

#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/tensor_box.h"

namespace tbx::lowering {

/// Both programs share a context. What nobody asks for leaves nothing in the other program.
class Replay {
public:
  /// `inputs` stand for the inputs of `from`, in order.
  Replay(ir::Program& to, const ir::Program& from, std::span<const ir::TensorBox> inputs);

  /// The value of a buffer of `from`.
  const ir::TensorBox& box(ir::BufferId id);
  /// An expression over buffers of `from` as one over those of `to`. local(k) becomes the element of
  /// `locals[k]` at the loop variables.
  ir::Expr operator()(ir::Expr e, std::span<const ir::TensorBox> locals = {});
  ir::SymInt operator()(ir::SymInt index, std::span<const ir::TensorBox> locals = {});
  /// The operation of `from` that writes the buffer; -1: none.
  int producer(ir::BufferId id) const;
  /// The buffers that are slices of `whole`.
  std::vector<ir::BufferId> parts(ir::BufferId whole) const;

private:
  ir::TensorBox make(ir::BufferId id);
  ir::TensorBox make(const ir::Compute& compute);
  ir::TensorBox make(const ir::Scatter& scatter);
  ir::TensorBox make_whole(ir::BufferId id);
  void run(const ir::ExternCall& original);
  ir::Expr load(ir::Expr n, std::span<const ir::TensorBox> locals);

  ir::Program& to_;
  const ir::Program& from_;
  std::map<ir::BufferId, ir::TensorBox> boxes_;
  std::vector<int> producers_; ///< by buffer
  std::unordered_map<ir::Expr, int> numbers_;
  std::vector<ir::Expr> loads_;
};

/// A box of zeros in memory of its own, and one into which `scatter` then stores; `scatter.target` is set.
ir::TensorBox scatter_onto(ir::Program& p, const ir::TensorBox& base, ir::Scatter scatter);

} // namespace tbx::lowering
