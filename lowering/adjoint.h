// Adjoint: gradients of a lowered program by its inputs, operation by operation in reverse.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ir/differentiate.h"
#include "lowering/replay.h"

namespace tbx::lowering {

/// Each loop nest gives every value that it loads its part of the gradient: the derivative of the body
/// (ir/differentiate.h) times the gradient of the result. Where the index of the load can be turned round,
/// that is one more loop nest over the value, a reduction over the loops that the index leaves out; else the
/// parts are scattered. All boxes are over the buffers of `to`, in compute types.
///
/// Calls of libraries for products count as the loop nests they stand for. ir::NoDerivative for other
/// kernels, random numbers, stores with reductions other than sums, and running maxima.
class Adjoint {
public:
  /// `inputs` stand for the inputs of `from`; gradients are wanted for those with wanted[i] != 0.
  /// `differentiated`: so is what comes out.
  Adjoint(ir::Program& to, const ir::Program& from, std::span<const ir::TensorBox> inputs,
          std::span<const char> wanted, bool differentiated);
  /// Adds to the gradient of output `i`.
  void seed(size_t i, const ir::TensorBox& gradient);
  void run();
  /// After run(): the gradient of input `i`, undefined where none arrives.
  ir::TensorBox gradient(size_t i) { return total(from_.inputs[i].buffer); }

private:
  using Boxes = std::vector<ir::TensorBox>;

  void find_active(std::span<const char> wanted);
  bool reads_active(ir::Expr e) const;
  ir::TensorBox total(ir::BufferId id);
  void give(ir::BufferId id, ir::TensorBox part) { parts_[id].push_back(std::move(part)); }

  void of_loops(const ir::Compute& compute, const ir::TensorBox& g);
  void of_scatter(const ir::Scatter& scatter, const ir::TensorBox& g);
  /// Derivatives of `body` times `seed`, given to what it loads. local(k) stands for `locals[k]`.
  void spread(ir::Expr body, ir::Expr seed, ir::Expr gate, const ir::Extents& extents, const Boxes& locals);
  ir::Expr product_seed(const ir::Loops& l, Boxes& locals);
  ir::Expr extreme_seed(const ir::Loops& l, Boxes& locals, ir::Expr& gate);
  ir::Expr running_product_seed(const ir::Loops& l, Boxes& locals);
  // The same as polynomials of the factors (adjoint_products.cpp).
  void of_product(const ir::Loops& l, Boxes locals);
  ir::Expr running_product_polynomial(const ir::Loops& l, Boxes& locals);
  /// One more box for local(k), whose expression it returns.
  ir::Expr local(Boxes& locals, ir::TensorBox box);
  ir::TensorBox reduce(const ir::Loops& l, ir::ReduceOp op, ir::Expr body, const Boxes& locals);
  ir::TensorBox scan(const ir::Loops& l, ir::ReduceOp op, bool exclusive, bool reverse, ir::Expr body,
                     const Boxes& locals);

  std::optional<ir::TensorBox> gathered(const ir::Partial& p, const ir::Extents& extents,
                                        const Boxes& locals);
  ir::TensorBox scattered(const ir::Partial& p, const ir::Extents& extents, const Boxes& locals);

  ir::Program& to_;
  const ir::Program& from_;
  ir::Context& c_;
  Replay replay_;
  const bool differentiated_;
  std::vector<char> active_; ///< buffers that depend on wanted inputs
  std::map<ir::BufferId, Boxes> parts_;
};

} // namespace tbx::lowering
