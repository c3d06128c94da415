#include "extern_kernels/host/label_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"

namespace tbx::extern_kernels {

namespace {

/// `prefix`_tensor, `prefix`_strings, `prefix`_int64s or `prefix`_floats.
Tensor column(const Attributes& attributes, const std::string& prefix) {
  const Tensor* tensor = find_tensor(attributes, prefix + "_tensor");
  const auto* strings = find_attribute<std::vector<std::string>>(attributes, prefix + "_strings");
  const auto* ints = find_attribute<std::vector<int64_t>>(attributes, prefix + "_int64s");
  const auto* floats = find_attribute<std::vector<double>>(attributes, prefix + "_floats");
  const int given = (tensor != nullptr) + (strings != nullptr) + (ints != nullptr) + (floats != nullptr);
  TBX_MODEL(given == 1, "{} of the attributes '{}_*' are given, expected one", given, prefix);
  if (tensor) return *tensor;
  if (ints) return Tensor::of_ints(*ints);
  if (strings) return Tensor::of_strings({static_cast<int64_t>(strings->size())}, *strings);
  Tensor t = Tensor::make(DType::f32, {static_cast<int64_t>(floats->size())});
  std::transform(floats->begin(), floats->end(), t.as_mutable<float>().begin(),
                 [](double v) { return static_cast<float>(v); });
  return t;
}

/// As many keys as values, one default of the type of the values.
void check_labels(const Tensor& keys, const Tensor& values, const Tensor& otherwise) {
  TBX_MODEL(keys.numel() == values.numel(), "{} keys for {} values", keys.numel(), values.numel());
  TBX_MODEL(otherwise.numel() == 1 && otherwise.dtype == values.dtype,
            "the default is {}[{}], expected one {}", name_of(otherwise.dtype), otherwise.numel(),
            name_of(values.dtype));
}

} // namespace

Tensor default_label(const Attributes& attributes, DType type) {
  if (const Tensor* t = find_tensor(attributes, "default_tensor")) return *t;
  if (type == DType::string)
    return Tensor::of_strings({1}, {attribute_or<std::string>(attributes, "default_string", "_Unused")});
  Tensor t = Tensor::make(type, {1});
  const auto integer = attribute_or<int64_t>(attributes, "default_int64", -1);
  const auto real = attribute_or<double>(attributes, "default_float", -0.0);
  switch (type) {
  case DType::f32: t.as_mutable<float>()[0] = static_cast<float>(real); break;
  case DType::f64: t.as_mutable<double>()[0] = real; break;
  case DType::i64: t.as_mutable<int64_t>()[0] = integer; break;
  case DType::i32: t.as_mutable<int32_t>()[0] = static_cast<int32_t>(integer); break;
  case DType::i16: t.as_mutable<int16_t>()[0] = static_cast<int16_t>(integer); break;
  default: throw_unsupported("labels of type {}", name_of(type));
  }
  return t;
}

Labels read_labels(const Attributes& attributes) {
  Labels labels{column(attributes, "keys"), column(attributes, "values"), {}};
  labels.otherwise = default_label(attributes, labels.values.dtype);
  check_labels(labels.keys, labels.values, labels.otherwise);
  return labels;
}

/// A number such that equal ones have equal bits.
uint64_t LabelTable::bits_of(const Tensor& t, int64_t i) {
  if (!is_float(t.dtype)) return static_cast<uint64_t>(element_as_int(t, i));
  double v = element_as_double(t, i);
  if (std::isnan(v)) return ~uint64_t{0};
  return std::bit_cast<uint64_t>(v == 0 ? 0.0 : v);
}

LabelTable::LabelTable(const Tensor& keys, const Tensor& values, const Tensor& otherwise)
    : keys_(keys.dtype) {
  check_labels(keys, values, otherwise);
  const int64_t n = keys.numel();
  for (int64_t i = 0; i < n; ++i) {
    if (keys.strings)
      texts_.try_emplace((*keys.strings)[i], i);
    else
      numbers_.try_emplace(bits_of(keys, i), i);
  }
  if (values.strings) {
    auto all = *values.strings;
    all.push_back(otherwise.strings->at(0));
    values_ = Tensor::of_strings({n + 1}, std::move(all));
    return;
  }
  values_ = Tensor::make(values.dtype, {n + 1});
  std::memcpy(values_.mutable_data(), values.data, static_cast<size_t>(values.bytes()));
  std::memcpy(values_.mutable_data() + values.bytes(), otherwise.data,
              static_cast<size_t>(otherwise.bytes()));
}

void LabelTable::apply(const Tensor& x, Tensor& y) const {
  TBX_MODEL(x.dtype == keys_, "the input is of type {}, the keys of type {}", name_of(x.dtype),
            name_of(keys_));
  TBX_MODEL(y.dtype == values_.dtype && y.numel() == x.numel(), "the output is {}[{}], expected {} of {}",
            name_of(y.dtype), y.numel(), x.numel(), name_of(values_.dtype));
  int64_t n = x.numel(), last = values_.numel() - 1, width = values_.strings ? 0 : size_of(values_.dtype);
  auto find = [&](const auto& map, const auto& key) {
    auto it = map.find(key);
    return it == map.end() ? last : it->second;
  };
  for (int64_t i = 0; i < n; ++i) {
    int64_t k = x.strings ? find(texts_, (*x.strings)[i]) : find(numbers_, bits_of(x, i));
    if (values_.strings)
      (*y.strings)[i] = (*values_.strings)[k];
    else
      std::memcpy(y.mutable_data() + i * width, values_.data + k * width, static_cast<size_t>(width));
  }
}

namespace {

class LabelEncoder : public ExternKernel {
public:
  explicit LabelEncoder(const HostProblem& p)
      : table_(tensor(p, "keys"), tensor(p, "values"), tensor(p, "default")) {}
  std::string description() const override { return "host LabelEncoder"; }
  void run(const RunArgs& args) const override {
    Tensor x = view(args.inputs[0]), y = view(args.outputs[0]);
    table_.apply(x, y);
  }

private:
  static const Tensor& tensor(const HostProblem& p, const char* name) {
    const Tensor* t = find_tensor(p.attributes, name);
    TBX_MODEL(t != nullptr, "attribute '{}' is missing", name);
    return *t;
  }
  static Tensor view(const TensorRef& t) {
    Tensor out;
    out.dtype = t.dtype;
    out.dims.assign(t.sizes.begin(), t.sizes.end());
    out.data = static_cast<const std::byte*>(t.data);
    return out;
  }

  LabelTable table_;
};

} // namespace

/// x -> the values of its elements, numbers to numbers; forms with strings are a value operator.
std::unique_ptr<ExternKernel> make_label_encoder(const HostProblem& p) {
  return std::make_unique<LabelEncoder>(p);
}

} // namespace tbx::extern_kernels
