// What a value is at run time: a tensor (numeric or of strings), a sequence, a map, or nothing.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace tbx {

struct MapValue {
  Tensor keys;   ///< 1-D, int64 or string, no key twice
  Tensor values; ///< 1-D, as many
};

/// A value of any ONNX type. An optional is either its element or `none`. Copies share memory: what a value
/// points at is changed only by who made it and has not yet given it away.
struct RuntimeValue {
  enum class Kind : uint8_t { none, tensor, sequence, map };
  Kind kind = Kind::none;
  Tensor tensor;
  std::shared_ptr<std::vector<RuntimeValue>> elements; ///< sequence
  std::shared_ptr<const MapValue> map;

  RuntimeValue() = default;
  RuntimeValue(Tensor t) : kind(Kind::tensor), tensor(std::move(t)) {} // NOLINT: a tensor is a value
  static RuntimeValue sequence(std::vector<RuntimeValue> elements);
  static RuntimeValue of_map(Tensor keys, Tensor values);

  bool is_none() const { return kind == Kind::none; }
  bool is_tensor() const { return kind == Kind::tensor; }
  bool is_sequence() const { return kind == Kind::sequence; }
  bool is_map() const { return kind == Kind::map; }
  /// The elements for a change: copied first when others see them, too.
  std::vector<RuntimeValue>& own_elements();
};

/// "tensor(float32)", "sequence", "map", "none": for messages.
const char* name_of(RuntimeValue::Kind kind);

/// `parts` of one type and shape (but for the length along `axis`), one after the other along `axis`; a part
/// of rank 0 is refused. With `new_axis`, equal shapes are stacked along a new dimension in front of `axis`.
/// Throws Error (model). Needs at least one part.
Tensor concatenate(const std::vector<const Tensor*>& parts, int64_t axis, bool new_axis);

/// Elements [begin, end) along `axis`. Needs a range inside the dimension.
Tensor slice_of(const Tensor& t, int64_t axis, int64_t begin, int64_t end);

} // namespace tbx
