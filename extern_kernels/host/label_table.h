// A mapping between two lists of strings or numbers (LabelEncoder, CategoryMapper).
#pragma once

#include <string>
#include <unordered_map>

#include "extern_kernels/attributes.h"

namespace tbx::extern_kernels {

/// What a LabelEncoder maps: as many keys as values, and the value of what is no key.
struct Labels {
  Tensor keys, values, otherwise;
};

/// Of a node since version 2 of ai.onnx.ml, from its attributes as in the file. ModelError where they do not
/// fit each other.
Labels read_labels(const Attributes& attributes);

/// One value of this type: `default_tensor`, or the `default_*` of its kind.
Tensor default_label(const Attributes& attributes, DType type);

/// Immutable. Of equal keys the first counts; NaN is equal to NaN, -0 to 0.
class LabelTable {
public:
  /// Keys and values: 1-D, as many of each. `otherwise`: one value of the type of the values.
  LabelTable(const Tensor& keys, const Tensor& values, const Tensor& otherwise);

  DType key_type() const { return keys_; }
  DType value_type() const { return values_.dtype; }
  /// Needs `x` of the key type and `y` of its shape and of the value type.
  void apply(const Tensor& x, Tensor& y) const;

private:
  static uint64_t bits_of(const Tensor& t, int64_t i);

  DType keys_;
  Tensor values_; ///< the last one is for what is no key
  std::unordered_map<std::string, int64_t> texts_;
  std::unordered_map<uint64_t, int64_t> numbers_;
};

} // namespace tbx::extern_kernels
