#include "runtime/made_for.h"

#include <algorithm>
#include <cstring>

namespace tbx::runtime {
namespace {

int64_t element_of(const RunTensor& t, size_t i) {
  return t.dtype == DType::i64 ? static_cast<const int64_t*>(host_elements(t))[i]
                               : static_cast<const int32_t*>(host_elements(t))[i];
}

bool has_value(const RunTensor& t, const Tensor& value) {
  return value.dims == t.dims && (value.bytes() == 0 || std::memcmp(value.data, host_elements(t),
                                                                    static_cast<size_t>(value.bytes())) == 0);
}

} // namespace

bool MadeFor::is_of(size_t num_inputs) const {
  if (kinds.empty()) return true;
  if (kinds.size() != num_inputs || values.size() != num_inputs || elements.size() != num_inputs)
    return false;
  return std::all_of(kinds.begin(), kinds.end(), [](const InputKind& kind) {
    const int64_t rank = kind.dims ? static_cast<int64_t>(kind.dims->size()) : 0;
    return std::all_of(kind.several.begin(), kind.several.end(),
                       [&](int64_t axis) { return axis >= 0 && axis < rank; });
  });
}

bool MadeFor::fits(std::span<const RunTensor> inputs) const {
  if (kinds.empty()) return true;
  constexpr size_t kMaxSizes = 64;
  int64_t bound[kMaxSizes];
  std::fill_n(bound, kMaxSizes, -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const RunTensor& t = inputs[i];
    if (kinds[i].dtype != DType::undefined && t.dtype != kinds[i].dtype) return false;
    if (kinds[i].dims) {
      const std::vector<int64_t>& dims = *kinds[i].dims;
      if (t.dims.size() != dims.size()) return false;
      for (int64_t axis : kinds[i].several)
        if (t.dims[static_cast<size_t>(axis)] < kLeastSize) return false;
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d] >= 0) {
          if (dims[d] != t.dims[d]) return false;
          continue;
        }
        auto k = static_cast<size_t>(-1 - dims[d]);
        if (k >= kMaxSizes) continue; // the session compares those
        if (bound[k] >= 0 && bound[k] != t.dims[d]) return false;
        bound[k] = t.dims[d];
      }
    }
    if (values[i] && !has_value(t, *values[i])) return false;
    if (elements[i].empty()) continue;
    if (checked_numel(t.dims) != static_cast<int64_t>(elements[i].size())) return false;
    for (size_t k = 0; k < elements[i].size(); ++k) {
      const int64_t v = element_of(t, k);
      if (elements[i][k] ? v != *elements[i][k] : !is_size(v)) return false;
    }
  }
  return true;
}

} // namespace tbx::runtime
