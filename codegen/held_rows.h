// Held rows: what the threads of a team keep in registers of a row from one phase of a kernel to the next.
#pragma once

#include <vector>

#include "base/target.h"
#include "codegen/lanes.h"
#include "ir/kernel.h"

namespace tbx::codegen {

/// Every phase of `phases` gives a thread the same points of a row, in `steps` steps of `lanes` neighbours
/// each.
struct HeldRows {
  struct Value {
    ir::Expr expr;
    int phase; ///< where it is computed; later ones use it
  };
  int threads = 0;           ///< of a team; 0: nothing is held, phases are loops
  int steps = 0;             ///< of a thread, written one after another
  std::vector<bool> phases;  ///< by phase: it is written in steps
  std::vector<Value> values; ///< f32, needed by several phases
  std::vector<int> buffers;  ///< stored once, and loaded at that place alone by the thread that stored it

  bool holds(int buffer) const;
};

/// Points of the rows and about how many instructions all phases have for one of them.
struct RowWork {
  int64_t points = 0; ///< 0: not known
  int64_t instructions = 0;
};
RowWork row_work(const ir::KernelProgram& kernel);

/// For teams of `threads` threads whose vectors have `lanes` neighbours of the innermost dimension.
HeldRows hold_rows(const ir::KernelProgram& kernel, int lanes, int threads, const Gpu& gpu);

/// Rows that are too long for registers: what several phases load of them is kept in the shared memory of the
/// block, by the thread that needs it.
struct SharedRows {
  struct Row {
    ir::Expr load;
    int phase;      ///< that loads it from memory; later ones have it
    int64_t offset; ///< bytes
  };
  int64_t points = 0; ///< of a row, a multiple of the lanes; behind them is place for two vectors more
  int64_t bytes = 0;
  std::vector<Row> rows;
  std::vector<bool> phases; ///< by phase: it goes along the row
};

/// As many as `most_bytes` hold. Vectors need not begin at a multiple of their lanes.
SharedRows share_rows(const ir::KernelProgram& kernel, int lanes, int64_t most_bytes);

} // namespace tbx::codegen
