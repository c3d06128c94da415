// BitCast of types that kernels know by value only (8-bit and smaller floats): the bits are copied.
#include <cstring>

#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

/// The bits of an element of 8 bits or fewer in the form that memory has: one byte, sign-extended.
uint8_t byte_of(unsigned bits, DType type) {
  int width = bits_of(type);
  if (type == DType::boolean) return bits != 0;
  bits &= (1u << width) - 1;
  bool negative = is_integer(type) && is_signed(type) && (bits >> (width - 1)) != 0;
  return static_cast<uint8_t>(negative ? bits | ~((1u << width) - 1) : bits);
}

} // namespace

ValueFunction make_value_bit_cast(const ValueNode& node) {
  const DType to = node.data_type("to");
  return [to](const ValueCall& call) {
    const Tensor& x = call.tensor(0);
    TBX_MODEL(bits_of(x.dtype) == bits_of(to) && x.dtype != DType::string && to != DType::string,
              "a bit cast from {} to {}", name_of(x.dtype), name_of(to));
    Tensor& out = call.make(0, to, x.dims);
    if (bits_of(to) > 8) {
      if (out.bytes() > 0) std::memcpy(out.mutable_data(), x.data, static_cast<size_t>(out.bytes()));
      return;
    }
    auto from = x.as<uint8_t>();
    auto result = out.as_mutable<uint8_t>();
    for (size_t i = 0; i < result.size(); ++i) result[i] = byte_of(from[i], to);
  };
}

} // namespace tbx::runtime
