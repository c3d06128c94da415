#include "extern_kernels/direct/operands.h"

#include <fmt/format.h>

namespace tbx::extern_kernels::direct {

std::string refused_types(std::span<const OperandInfo> inputs, DType result) {
  const bool known = with_element(result, []<class T>(T) { return !std::is_same_v<T, std::nullptr_t>; });
  if (!known) return fmt::format("a {} result", name_of(result));
  for (size_t k = 0; k < inputs.size(); ++k) {
    const DType type = inputs[k].dtype;
    if (type == DType::undefined) continue;
    const bool fits = is_float(result) ? type == result || (result == DType::f32 && k == 1 &&
                                                            inputs[1].constant && is_half(type))
                                       : is_integer(type);
    if (!fits) return fmt::format("{} operands", name_of(type));
  }
  return {};
}

} // namespace tbx::extern_kernels::direct
