// Tile of opset 1, where number and axis are scalars of the input's type that a run may decide.
#include <cstring>

#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

int64_t whole_number(const ValueCall& call, int i, const char* what) {
  const Tensor& t = call.tensor(i);
  TBX_MODEL(t.numel() == 1 && (is_float(t.dtype) || is_integer(t.dtype)), "{} is {}[{}], expected one number",
            what, name_of(t.dtype), fmt::join(t.dims, ", "));
  return element_as_int(t, 0);
}

void tile(const ValueCall& call) {
  const Tensor& x = call.tensor(0);
  TBX_MODEL(x.dtype != DType::string, "the input is of type string");
  int64_t tiles = whole_number(call, 1, "tiles"), axis = whole_number(call, 2, "axis");
  auto rank = static_cast<int64_t>(x.dims.size());
  TBX_MODEL(axis >= -rank && axis < rank, "axis {} is out of range for rank {}", axis, rank);
  TBX_MODEL(tiles >= 0, "tiles is {}", tiles);
  auto at = x.dims.begin() + (axis < 0 ? axis + rank : axis);
  int64_t outer = checked_numel({x.dims.begin(), at}), block = checked_numel({at, x.dims.end()});
  std::vector<int64_t> dims = x.dims;
  TBX_MODEL(!__builtin_mul_overflow(*at, tiles, &dims[static_cast<size_t>(at - x.dims.begin())]),
            "a dimension overflows 64 bits: {} * {}", *at, tiles);
  Tensor& out = call.make(0, x.dtype, std::move(dims));
  if (out.bytes() == 0) return;
  auto bytes = static_cast<size_t>(block * size_of(x.dtype));
  std::byte* to = out.mutable_data();
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t t = 0; t < tiles; ++t, to += bytes)
      std::memcpy(to, x.data + static_cast<size_t>(o) * bytes, bytes);
}

} // namespace

ValueFunction make_value_tile(const ValueNode& node) {
  if (node.opset >= 6) throw_unsupported("Tile of opset {} on run-time values", node.opset);
  return tile;
}

} // namespace tbx::runtime
