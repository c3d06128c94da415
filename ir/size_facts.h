// What the checks of a program say of its sizes: every run that starts has passed them.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/tensor_box.h"

namespace tbx::ir {

class SizeFacts {
public:
  void add(const Check& check) { add(check.value, check.equal); }
  void add(SymInt value, bool equal);
  /// The expression with symbols that equal others written as those.
  SymInt in_terms(SymInt e) const { return equals_.empty() ? e : replace(e, equals_); }
  /// Whether the facts say so, or nothing but the expressions does.
  bool equal(SymInt a, SymInt b) const {
    return provably_equal(a, b) || (!equals_.empty() && provably_equal(in_terms(a), in_terms(b)));
  }
  /// Expressions that are >= 0, in these terms.
  const std::vector<SymInt>& nonnegative() const { return nonnegative_; }

private:
  void add_equal(SymInt value);
  void add_nonnegative(SymInt value);

  std::unordered_map<const SymNode*, SymInt> equals_;
  std::vector<SymInt> nonnegative_;
};

} // namespace tbx::ir
