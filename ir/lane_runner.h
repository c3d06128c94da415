// Runs a LaneProgram over a range of outer points.
#pragma once

#include <memory>
#include <span>

#include "ir/lane_ops.h"
#include "ir/lane_program.h"

namespace tbx::ir {

class LaneRunner {
public:
  LaneRunner(const LaneProgram& program, std::span<void* const> buffers, std::span<const int64_t> symbols);
  /// Outer points [begin, end) in row-major order.
  void run(int64_t begin, int64_t end);

private:
  /// Accumulators have a value per lane when vertical, else one.
  struct Accumulator {
    Lanes value;
    double sum[kLanes];    ///< sums of f32
    int64_t index[kLanes]; ///< position of the best, for arg reductions
    int64_t position = 0;
    DType type = DType::undefined;
    ReduceOp op = ReduceOp::sum;
    Scalar result(int lane) const;
  };
  struct Local {
    Lanes value;
    int lanes = 0;
  };

  void run_phase(size_t phase, int n);
  void run_block(size_t phase, int n);
  void check_time(); ///< whether the run is to end, once in a while
  void compute(const Slot& slot, Lanes& out, int n);
  void compute_index(const Slot& slot, Lanes& out, int n);
  void execute(const LaneStmt& s, int n);
  void store(const LaneStmt& s, int n);
  void reduce(const LaneStmt& s, int n);
  void reduce_position(const LaneStmt& s, Accumulator& acc, const Lanes& v, int n);
  void scan(const LaneStmt& s, int n);
  void begin_accumulators(const LanePhase& phase, int n);

  const Lanes& lanes(int slot) const { return (*current_)[static_cast<size_t>(slot)]; }
  int64_t size(SymInt e) const;
  int64_t now(SymInt e) const; ///< under the current loop variables
  LaneAddress locate(const LaneIndex& index, int buffer, const Lanes* mask, int n);
  void check_guards(const LaneIndex& index, const Lanes* mask, int n) const;

  const LaneProgram& program_;
  const KernelProgram& kernel_;
  std::vector<void*> buffers_;
  std::span<const int64_t> symbols_;
  std::vector<int64_t> numel_;
  std::vector<std::vector<std::byte>> row_local_;
  std::vector<int64_t> outer_extent_, outer_, inner_;
  std::vector<std::vector<int64_t>> inner_extent_; ///< per phase
  std::vector<std::vector<Lanes>> slots_;          ///< per phase
  std::vector<Lanes>* current_ = nullptr;
  const LanePhase* phase_ = nullptr;
  std::vector<Local> locals_;
  std::vector<Accumulator> accumulators_;
  int64_t block_start_ = 0;
  uint32_t blocks_ = 0;    ///< computed so far
  int64_t scaled_[kLanes]; ///< addresses in row-local buffers, which are interleaved by lane when vertical
};

/// Value an accumulator starts with.
Scalar reduction_identity(ReduceOp op, DType type);

} // namespace tbx::ir
