// How indices and values change across the lanes of a vector: the analysis behind every load, store and
// hoist.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "ir/kernel.h"

namespace tbx::codegen {

/// An index seen as a function of the lane l of a vector whose first lane has the variable at a multiple of
/// `lanes`.
struct LaneForm {
  enum Kind : uint8_t { uniform, affine, varying } kind = uniform;
  ir::SymInt stride = 0; ///< affine: value(l) = value(0) + stride * l
  int64_t repeat = 0; ///< varying, if not 0: value(l) = value(0) + l / repeat, a power of two below the lanes
  /// varying, if not null: a floordiv x / c, c a constant of at least kLeastStep, with
  /// value(l) = value(0) + floor((x mod c + l) / c).
  const ir::SymNode* steps = nullptr;
  static constexpr int64_t kLeastStep = 4; ///< shorter steps are as fast lane by lane
};

/// Answers for one choice of vector variable. Without a variable everything is uniform.
class LaneAnalysis {
public:
  LaneAnalysis(const ir::SymNode* variable, int lanes) : LaneAnalysis(variable, lanes, lanes) {}
  /// `multiple`: of what the variable is a multiple in the first lane, where that is not of `lanes`.
  LaneAnalysis(const ir::SymNode* variable, int lanes, int multiple)
      : variable_(variable), lanes_(lanes), multiple_(multiple) {}

  const ir::SymNode* variable() const { return variable_; }
  /// Results that are vectors: those of vertical reductions, and of `let`s of varying values.
  void set_varying_accumulator(int number) { accumulators_.insert(number); }
  void set_varying_local(int number) { locals_.insert(number); }
  /// Row-local buffers hold one value per lane (vertical kernels).
  void set_varying_buffer(int buffer) { buffers_.insert(buffer); }

  LaneForm form(ir::SymInt e);
  bool varies(ir::Expr e);
  bool varies(ir::SymInt e) { return form(e).kind != LaneForm::uniform; }

private:
  LaneForm form_of(const ir::SymNode& n);
  bool compute_varies(ir::Expr e);
  const ir::SymNode* variable_;
  int lanes_, multiple_;
  std::unordered_set<int> accumulators_, locals_, buffers_;
  std::unordered_map<const ir::SymNode*, LaneForm> forms_;
  std::unordered_map<ir::Expr, bool> varies_;
};

/// A positive number that divides `e` for all values of symbols and variables, `variable` being a multiple of
/// `lanes`; 0 when e is always 0.
int64_t known_divisor(ir::SymInt e, const ir::SymNode* variable, int lanes);

/// Bytes, at most 16, that the place of element `address` is known to be a multiple of, in memory that begins
/// at one.
int access_bytes(const ir::KernelBuffer& buffer, ir::SymInt address, const ir::SymNode* variable, int lanes);

} // namespace tbx::codegen
