// Makes boxes of constants and of known values, each once per program.
#include "base/error.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {
namespace {

/// All values free of symbols: a plain constant.
bool to_tensor(const KnownTensor& k, Tensor& out) {
  std::vector<int64_t> ints;
  for (ir::SymInt v : k.values) {
    if (!v.is_constant()) return false;
    ints.push_back(v.constant());
  }
  out = Tensor::make(k.dtype, k.dims);
  for (size_t i = 0; i < ints.size(); ++i) {
    double d = static_cast<double>(ints[i]) / static_cast<double>(k.denominator);
    switch (k.dtype) {
    case DType::f32: out.as_mutable<float>()[i] = static_cast<float>(d); break;
    case DType::f64: out.as_mutable<double>()[i] = d; break;
    case DType::boolean: out.as_mutable<uint8_t>()[i] = ints[i] != 0; break;
    default:
      if (!is_integer(k.dtype)) return false;
      switch (size_of(k.dtype)) {
      case 1: out.as_mutable<int8_t>()[i] = static_cast<int8_t>(ints[i]); break;
      case 2: out.as_mutable<int16_t>()[i] = static_cast<int16_t>(ints[i]); break;
      case 4: out.as_mutable<int32_t>()[i] = static_cast<int32_t>(ints[i]); break;
      default: out.as_mutable<int64_t>()[i] = ints[i]; break;
      }
    }
  }
  return true;
}

ir::TensorBox box_of_known(ir::Program& p, const KnownTensor& k) {
  Tensor t;
  if (to_tensor(k, t)) return ir::make_constant(p, std::move(t));
  bool scalar = k.dims.empty(), as_is = k.dtype == DType::i64 || k.dtype == DType::i32;
  ir::TensorBox box = ir::make_symbolic(p, k.values, scalar, as_is ? k.dtype : DType::i64);
  if (!as_is) {
    ir::Context& c = *p.context;
    ir::SymInts at;
    if (!scalar) at.push_back(c.var(0));
    ir::Expr e = to_compute(box.load(p, at), k.dtype);
    if (k.denominator != 1) e = ir::div(e, c.constant(e->dtype, static_cast<double>(k.denominator)));
    box = ir::make_pointwise(p, k.dtype, box.sizes(), e);
  }
  if (k.dims.size() <= 1) return box;
  auto values = box.known_values;
  box = ir::reshape(p, box, {k.dims.begin(), k.dims.end()});
  box.known_values = std::move(values);
  return box;
}

} // namespace

std::shared_ptr<const Tensor> constant_of(const LoweredValue& value) {
  if (value.constant) return value.constant;
  if (value.tensor.constant) return value.tensor.constant;
  Tensor t;
  if (value.known && to_tensor(*value.known, t)) return std::make_shared<const Tensor>(std::move(t));
  return nullptr;
}

const ir::TensorBox& BoxPool::box(ir::Program& program, const LoweredValue& value) {
  const void* key = value.constant ? static_cast<const void*>(value.constant.get()) : value.known.get();
  auto [it, fresh] = boxes_.try_emplace(key);
  if (fresh) {
    if (value.constant) {
      if (value.constant->dtype == DType::string || is_complex(value.constant->dtype))
        ask_for_run(
            fmt::format("a constant of type {} in a tensor operator", name_of(value.constant->dtype)));
      it->second.keep_alive = value.constant;
      it->second.box = ir::make_constant(program, *value.constant);
      it->second.box.constant = value.constant;
    } else {
      it->second.keep_alive = value.known;
      it->second.box = box_of_known(program, *value.known);
    }
  }
  return it->second.box;
}

} // namespace tbx::lowering
