// Reductions and scans of one phase: accumulator variables, their updates and their final combination.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/writer.h"
#include "ir/kernel.h"

namespace tbx::codegen {

class Reductions {
public:
  /// `along`: lanes run along the reduced variable (they are combined in the end), else accumulators are as
  /// wide as their values. `copies`: independent accumulators to hide latency.
  Reductions(Writer& w, const ir::KernelProgram& kernel, const ir::Phase& phase, bool along, int copies);

  /// Level of the loop whose chunks end with a flush of f32 sums into f64 totals, -1 if sums are short.
  int cascade_level() const { return cascade_level_; }
  int64_t cascade_chunk() const { return cascade_chunk_; }

  /// Sums are short: no chunks of them.
  void sum_at_once() { cascade_level_ = -1; }
  /// Threads that have the same lanes of CUDA, which go across the rows, join their results.
  void join_threads() { join_threads_ = true; }
  void declare();
  /// Until further notice only the lanes of this mask are new (empty: all are).
  void set_overlap(std::string mask) { overlap_ = std::move(mask); }
  void update(const ir::Stmt& s, int copy);
  void scan(const ir::Stmt& s);
  void flush();
  /// Defines the phase's accumulators in the current scope.
  void finish();

private:
  struct Accumulator {
    const ir::Stmt* stmt;
    bool vector, cascade;
    std::vector<std::string> names;     ///< one per copy
    std::vector<std::string> positions; ///< arg reductions
    std::string total;                  ///< f64, with cascade
  };
  std::string joined(const Accumulator& a);
  void plan_cascade();
  ir::SymInt position() const;

  Writer& w_;
  const ir::KernelProgram& kernel_;
  const ir::Phase& phase_;
  std::string overlap_;
  bool along_, join_threads_ = false, narrow_ = false; ///< narrow: positions fit i32
  int copies_, cascade_level_ = -1;
  int64_t cascade_chunk_ = 0;
  std::map<const ir::Stmt*, Accumulator> accumulators_;
};

bool is_arg(ir::ReduceOp op);
/// Neutral element as the text of a scalar of type t.
std::string neutral(ir::ReduceOp op, DType t);

} // namespace tbx::codegen
