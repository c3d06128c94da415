// Rules of known values: what the arithmetic and the movement rules share. Used by symbolic_values.cpp only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lowering/op_registry.h"

namespace tbx::lowering::known {

using ir::SymInt;
using ir::SymInts;
using Known = std::optional<KnownTensor>;
using Dims = std::vector<int64_t>;

inline constexpr int64_t kMaxElements = 4096;

/// Saturates above kMaxElements.
int64_t numel_of(std::span<const int64_t> dims);
/// Any element is an expression, not a number.
bool is_symbolic(const KnownTensor& k);
std::optional<Dims> as_constants(const KnownTensor& k);
/// Row-major position of `index` in a tensor of `dims`, with broadcasting from the right.
int64_t broadcast_position(std::span<const int64_t> index, std::span<const int64_t> dims);
std::optional<Dims> broadcast_dims(const Dims& a, const Dims& b);

/// Calls `fn` with every index in row-major order, until it gives false.
template <class Fn> bool for_each_index(std::span<const int64_t> dims, Fn fn) {
  Dims index(dims.size(), 0);
  for (int64_t n = numel_of(dims), i = 0; i < n; ++i) {
    if (!fn(std::span<const int64_t>(index))) return false;
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
  return true;
}

/// The node and its known inputs.
struct Args {
  const OpContext& node;
  std::vector<std::shared_ptr<const KnownTensor>> in; ///< null: input left out
  /// ModelError where it is left out.
  const KnownTensor& operator[](size_t i) const {
    TBX_MODEL(has(i), "input {} is missing", i);
    return *in[i];
  }
  bool has(size_t i) const { return i < in.size() && in[i] != nullptr; }
  std::optional<Dims> ints(size_t i) const { return has(i) ? as_constants(*in[i]) : std::nullopt; }
  /// An axis made non-negative; nullopt when out of range (the lowering reports it).
  std::optional<int64_t> wrap(int64_t axis, size_t rank) const;
  /// Axes as attribute, or from an opset on as input 1.
  std::optional<Dims> axes(int opset_of_input) const;
};

/// nullopt: the result does not follow.
using Rule = std::function<Known(const Args&)>;
using Rules = std::unordered_map<std::string, Rule>;

// --- on one element; nullopt where the result does not follow for all values of the symbols
using Element = std::optional<SymInt>;
Element equal(SymInt a, SymInt b);
/// The value may be held in `type`.
bool fits(const Element& e, DType type);
/// Small enough that one more operation cannot overflow.
bool is_tame(SymInt v);
/// Both tensors over one denominator.
bool align(KnownTensor& a, KnownTensor& b);

/// A quotient whose denominator is no power of two: the only value that a float here does not hold exactly.
inline bool is_quotient(const KnownTensor& k) { return (k.denominator & (k.denominator - 1)) != 0; }
/// The float operator gives for `out` what exact arithmetic gave, where its sizes are as the program takes
/// for granted; false where that is not known.
bool is_exact(const Args& args, const KnownTensor& out);

/// Split, the one operator with several results.
std::optional<std::vector<LoweredValue>> split(const OpContext& node);

void add_arithmetic_rules(Rules& rules);
void add_movement_rules(Rules& rules);

} // namespace tbx::lowering::known
