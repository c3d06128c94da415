// Builders of TensorBoxes.
#include <algorithm>

#include "base/error.h"
#include "ir/lane_ops.h"
#include "ir/tensor_box.h"

namespace tbx::ir {
namespace {

TensorBox box_of(Loops loops) {
  DType dtype = loops.dtype;
  SymInts sizes = loops.ranges;
  return TensorBox(std::make_shared<StorageBox>(std::move(loops)), dtype, std::move(sizes));
}

void check_stored_type(Expr body, DType dtype) {
  if (body->dtype != compute_type(dtype))
    throw TypeError(fmt::format("a value of type {} is stored as {}", name_of(body->dtype), name_of(dtype)));
}

} // namespace

TensorBox make_pointwise(Program&, DType dtype, SymInts ranges, Expr body) {
  check_stored_type(body, dtype);
  Loops loops;
  loops.ranges = std::move(ranges);
  loops.dtype = dtype;
  loops.body = simplify(body, loops.extents());
  return box_of(std::move(loops));
}

TensorBox make_reduction(Program& p, ReduceOp op, DType dtype, SymInts ranges, SymInts reduction_ranges,
                         Expr body) {
  bool is_arg = op >= ReduceOp::argmax;
  Context& c = *p.context;
  bool single =
      std::all_of(reduction_ranges.begin(), reduction_ranges.end(), [](SymInt s) { return s.is(1); });
  if (single) {
    if (is_arg) return make_pointwise(p, dtype, std::move(ranges), c.constant_int(compute_type(dtype), 0));
    Expr value = substitute(body, {{}, SymInts(reduction_ranges.size(), SymInt(0))});
    return make_pointwise(p, dtype, std::move(ranges), value);
  }
  Loops loops;
  loops.kind = LoopKind::reduction;
  loops.ranges = std::move(ranges);
  loops.reduction_ranges = std::move(reduction_ranges);
  loops.reduce = op;
  loops.dtype = dtype;
  loops.body = simplify(body, loops.extents());
  return box_of(std::move(loops));
}

TensorBox make_scan(Program&, ReduceOp op, DType dtype, SymInts ranges, int axis, bool exclusive,
                    bool reverse, Expr body) {
  Loops loops;
  loops.kind = LoopKind::scan;
  loops.ranges = std::move(ranges);
  loops.scan_axis = axis;
  loops.exclusive = exclusive;
  loops.reverse = reverse;
  loops.reduce = op;
  loops.dtype = dtype;
  loops.body = simplify(body, loops.extents());
  return box_of(std::move(loops));
}

TensorBox make_constant(Program& p, Tensor tensor, std::string name) {
  auto shared = std::make_shared<const Tensor>(std::move(tensor));
  TensorBox box = make_buffer_box(p, p.add_constant(shared, std::move(name)));
  box.constant = shared;
  if ((is_integer(shared->dtype) || shared->dtype == DType::boolean) && shared->numel() <= 4096) {
    std::vector<int64_t> values = to_ints(*shared);
    box.known_values = std::make_shared<const SymInts>(values.begin(), values.end());
  }
  return box;
}

TensorBox make_symbolic(Program& p, SymInts values, bool scalar, DType dtype) {
  Context& c = *p.context;
  auto n = static_cast<int64_t>(values.size());
  TBX_INTERNAL(!scalar || n == 1);
  if (std::all_of(values.begin(), values.end(), [](SymInt v) { return v.is_constant(); })) {
    Tensor t = Tensor::make(dtype, scalar ? std::vector<int64_t>{} : std::vector<int64_t>{n});
    for (int64_t i = 0; i < n; ++i) {
      Scalar s = apply_cast(DType::i64, compute_type(dtype), {values[i].constant(), 0});
      store_element(dtype, t.mutable_data(), i, s);
    }
    return make_constant(p, std::move(t));
  }
  DType type = compute_type(dtype);
  Expr body = n ? c.cast(c.index(values.back()), type) : c.constant_int(type, 0);
  for (int64_t i = n - 1; i-- > 0;) {
    Expr here = binary(Op::equal, c.index(c.var(0)), c.constant_int(DType::i64, i));
    body = c.where(here, c.cast(c.index(values[i]), type), body);
  }
  TensorBox box = make_pointwise(p, dtype, scalar ? SymInts{} : SymInts{n}, body);
  box.known_values = std::make_shared<const SymInts>(std::move(values));
  return box;
}

TensorBox make_buffer_box(Program& p, BufferId buffer) {
  const Buffer& b = p.at(buffer);
  TensorBox box(std::make_shared<StorageBox>(buffer), b.dtype, b.sizes);
  box.storage()->name = b.name;
  return box;
}

} // namespace tbx::ir
