// The range of an index over the points of a loop nest.
#pragma once

#include <optional>

#include "ir/symint_impl.h"

namespace tbx::ir {

/// Proves under extents, facts about sizes and a mask.
class RangeProver {
public:
  /// `facts` are >= 0; both must outlive the prover.
  RangeProver(const Extents& extents, const SymInts& facts) : prover_(extents), facts_(facts) {}
  /// e >= 0 at every point where all of `also` are >= 0.
  bool nonnegative(SymInt e, const SymInts& also);

private:
  bool attempt(SymInt e, const SymInts& also, int depth);

  symint::Prover prover_;
  const SymInts& facts_;
};

/// The greatest (least) value of e over the points of a nest that is not empty, which some point attains;
/// nullopt when it has no such form, as where two parts of e move with one variable.
std::optional<SymInt> extreme(SymInt e, const Extents& extents, bool greatest);

} // namespace tbx::ir
