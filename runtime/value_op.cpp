#include "runtime/value_op.h"

#include <algorithm>
#include <array>

#include "extern_kernels/attributes.h"

namespace tbx::runtime {

#define TBX_VALUE_OP(domain, op, since, make) ValueFunction make(const ValueNode&);
#include "runtime/value_ops.inc"
#undef TBX_VALUE_OP

namespace {

struct Entry {
  ValueOpInfo info;
  MakeValueFunction make;
};

constexpr std::array kEntries = {
#define TBX_VALUE_OP(domain, op, since, make) Entry{{domain, op, since}, make},
#include "runtime/value_ops.inc"
#undef TBX_VALUE_OP
};

using extern_kernels::attribute_or;

} // namespace

MakeValueFunction find_value_op(std::string_view domain, std::string_view op, int opset) {
  const Entry* best = nullptr;
  for (const Entry& e : kEntries)
    if (e.info.domain == domain && e.info.op == op && e.info.since <= opset &&
        (!best || best->info.since < e.info.since))
      best = &e;
  return best ? best->make : nullptr;
}

std::vector<ValueOpInfo> value_ops() {
  std::vector<ValueOpInfo> all;
  all.reserve(kEntries.size());
  for (const Entry& e : kEntries) all.push_back(e.info);
  return all;
}

int64_t ValueNode::integer(const char* name, int64_t otherwise) const {
  return attribute_or(attributes, name, otherwise);
}
DType ValueNode::data_type(const char* name) const {
  const int64_t number = integer(name, 0);
  auto type = dtype_from_number(number);
  TBX_MODEL(type, "attribute '{}' is no data type: {}", name, number);
  return *type;
}
double ValueNode::real(const char* name, double otherwise) const {
  return attribute_or(attributes, name, otherwise);
}
std::string ValueNode::text(const char* name, std::string otherwise) const {
  return attribute_or(attributes, name, std::move(otherwise));
}
std::vector<int64_t> ValueNode::integers(const char* name) const {
  return attribute_or(attributes, name, std::vector<int64_t>{});
}
std::vector<double> ValueNode::reals(const char* name) const {
  return attribute_or(attributes, name, std::vector<double>{});
}
std::vector<std::string> ValueNode::texts(const char* name) const {
  return attribute_or(attributes, name, std::vector<std::string>{});
}
std::shared_ptr<const Tensor> ValueNode::tensor(const char* name) const {
  return attribute_or(attributes, name, std::shared_ptr<const Tensor>());
}

int64_t bytes_of_value(const RuntimeValue& v) {
  int64_t bytes = 128; // what a tensor takes besides its elements
  if (v.is_tensor() && v.tensor.strings) {
    for (const std::string& s : *v.tensor.strings)
      bytes += static_cast<int64_t>(sizeof(std::string) + s.size());
  } else if (v.is_tensor()) {
    bytes += v.tensor.bytes();
  } else if (v.is_sequence()) {
    for (const RuntimeValue& e : *v.elements) bytes += bytes_of_value(e);
  }
  return bytes;
}

const RuntimeValue& ValueCall::value(int i) const {
  TBX_MODEL(i < num_inputs() && inputs[i].value, "input {} is missing", i);
  return *inputs[i].value;
}

const Tensor& ValueCall::tensor(int i) const {
  const RuntimeValue& v = value(i);
  TBX_MODEL(v.is_tensor(), "input {} is {}, not a tensor", i, name_of(v.kind));
  return v.tensor;
}

const Tensor& ValueCall::tensor(int i, DType dtype) const {
  const Tensor& t = tensor(i);
  TBX_MODEL(t.dtype == dtype, "input {} is of type {}, expected {}", i, name_of(t.dtype), name_of(dtype));
  return t;
}

const std::vector<std::string>& ValueCall::strings(int i) const { return *tensor(i, DType::string).strings; }

const std::vector<RuntimeValue>& ValueCall::sequence(int i) const {
  const RuntimeValue& v = value(i);
  TBX_MODEL(v.is_sequence(), "input {} is {}, not a sequence", i, name_of(v.kind));
  return *v.elements;
}

int64_t ValueCall::integer(int i) const {
  const Tensor& t = tensor(i);
  TBX_MODEL((is_integer(t.dtype) || t.dtype == DType::boolean) && t.numel() == 1,
            "input {} is {}[{}], expected one integer", i, name_of(t.dtype), fmt::join(t.dims, ", "));
  return element_as_int(t, 0);
}

RuntimeValue ValueCall::take(int i) const {
  value(i);
  return inputs[i].last_use ? std::move(*inputs[i].value) : *inputs[i].value;
}

void ValueCall::need(int64_t count, int64_t each) const {
  TBX_MODEL(count <= room / each, "a result has {} elements of {} bytes, there is memory for {} bytes", count,
            each, room);
}

Tensor& ValueCall::make(int i, DType dtype, std::vector<int64_t> dims) const {
  TBX_MODEL(static_cast<size_t>(i) < outputs.size(), "output {} is missing", i);
  need(checked_numel(dims), std::max<int64_t>(1, size_of(dtype)));
  outputs[i] = RuntimeValue(Tensor::make(dtype, std::move(dims)));
  return outputs[i].tensor;
}

std::vector<std::string>& ValueCall::make_strings(int i, std::vector<int64_t> dims) const {
  constexpr int64_t kMaxStrings = int64_t{1} << 40;
  TBX_MODEL(static_cast<size_t>(i) < outputs.size(), "output {} is missing", i);
  int64_t n = checked_numel(dims);
  TBX_MODEL(n <= kMaxStrings, "a tensor of {} strings", n);
  need(n, sizeof(std::string));
  outputs[i] =
      RuntimeValue(Tensor::of_strings(std::move(dims), std::vector<std::string>(static_cast<size_t>(n))));
  return *outputs[i].tensor.strings;
}

} // namespace tbx::runtime
