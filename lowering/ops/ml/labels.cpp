// LabelEncoder between numbers, with lists or tensors of keys and values. The forms with strings are a value
// operator (runtime/value_ops/ml_labels.cpp).
#include <algorithm>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/ml/ml.h"

namespace tbx::lowering {
namespace {

using TensorPointer = std::shared_ptr<const Tensor>;

template <class T> TensorPointer list_of(DType type, const std::vector<T>& values) {
  Tensor t = Tensor::make(type, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as_mutable<T>().begin());
  return std::make_shared<const Tensor>(std::move(t));
}

/// `prefix`_tensor, `prefix`_int64s or `prefix`_floats. Strings make the node run on values.
TensorPointer column(const OpContext& ctx, const std::string& prefix) {
  if (ctx.has_attr(prefix + "_strings"))
    throw RuntimeValueError(fmt::format("'{}_strings' in a compiled part", prefix));
  if (auto t = ctx.attr_tensor(prefix + "_tensor")) {
    if (t->strings) throw RuntimeValueError(fmt::format("'{}_tensor' holds strings", prefix));
    return t;
  }
  auto ints = ctx.attr_ints(prefix + "_int64s");
  auto floats = ctx.attr_floats(prefix + "_floats");
  TBX_MODEL(ints.empty() != floats.empty(), "exactly one of the attributes '{}_*' must be given", prefix);
  return ints.empty() ? list_of(DType::f32, floats) : list_of(DType::i64, ints);
}

std::vector<LoweredValue> label_encoder(OpContext& ctx) {
  TensorPointer keys = column(ctx, "keys"), values = column(ctx, "values"), otherwise;
  TBX_MODEL(keys->dtype == ctx.dtype(0), "keys of type {} for an input of type {}", name_of(keys->dtype),
            name_of(ctx.dtype(0)));
  TBX_MODEL(keys->numel() == values->numel(), "{} keys for {} values", keys->numel(), values->numel());
  if (auto t = ctx.attr_tensor("default_tensor")) {
    TBX_MODEL(t->dtype == values->dtype && t->numel() == 1, "default_tensor does not fit values of type {}",
              name_of(values->dtype));
    otherwise = t;
  } else {
    Tensor one = Tensor::make(values->dtype, {1});
    float real = ctx.attr_float("default_float", -0.f);
    int64_t integer = ctx.attr_int("default_int64", -1);
    switch (values->dtype) {
    case DType::f32: one.as_mutable<float>()[0] = real; break;
    case DType::f64: one.as_mutable<double>()[0] = real; break;
    case DType::i64: one.as_mutable<int64_t>()[0] = integer; break;
    case DType::i32: one.as_mutable<int32_t>()[0] = static_cast<int32_t>(integer); break;
    case DType::i16: one.as_mutable<int16_t>()[0] = static_cast<int16_t>(integer); break;
    default: throw_unsupported("labels of type {}", name_of(values->dtype));
    }
    otherwise = std::make_shared<const Tensor>(std::move(one));
  }
  return host_call(ctx, {{values->dtype, ctx.sizes(0)}},
                   {{"keys", keys}, {"values", values}, {"default", otherwise}});
}

} // namespace

void register_ml_labels(Registry& r) { r.add("LabelEncoder", since(2), label_encoder, kMl); }

} // namespace tbx::lowering
