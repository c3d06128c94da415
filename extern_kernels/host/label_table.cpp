#include "extern_kernels/host/label_table.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"

namespace tbx::extern_kernels {

/// A number such that equal ones have equal bits.
uint64_t LabelTable::bits_of(const Tensor& t, int64_t i) {
  if (!is_float(t.dtype)) return static_cast<uint64_t>(element_as_int(t, i));
  double v = element_as_double(t, i);
  if (std::isnan(v)) return ~uint64_t{0};
  return std::bit_cast<uint64_t>(v == 0 ? 0.0 : v);
}

LabelTable::LabelTable(const Tensor& keys, const Tensor& values, const Tensor& otherwise)
    : keys_(keys.dtype) {
  int64_t n = keys.numel();
  TBX_MODEL(n == values.numel(), "{} keys for {} values", n, values.numel());
  TBX_MODEL(otherwise.numel() == 1 && otherwise.dtype == values.dtype,
            "the default is {}[{}], expected one {}", name_of(otherwise.dtype), otherwise.numel(),
            name_of(values.dtype));
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
    return *std::get<std::shared_ptr<const Tensor>>(p.attributes.at(name));
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
