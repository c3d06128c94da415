// ai.onnx.ml operators on strings: LabelEncoder, CategoryMapper, OneHotEncoder.
#include <unordered_map>

#include "extern_kernels/host/label_table.h"
#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

using extern_kernels::default_label;
using extern_kernels::LabelTable;

Tensor list_of(std::vector<std::string> values) {
  auto n = static_cast<int64_t>(values.size());
  return Tensor::of_strings({n}, std::move(values));
}

Tensor counted(size_t n) {
  std::vector<int64_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int64_t>(i);
  return Tensor::of_ints(ids);
}

/// Bytes of the longest one.
int64_t longest(const Tensor& strings, const Tensor& otherwise) {
  size_t most = 0;
  for (const Tensor* t : {&strings, &otherwise})
    for (size_t i = 0; t->strings && i < t->strings->size(); ++i)
      most = std::max(most, (*t->strings)[i].size());
  return static_cast<int64_t>(most);
}

/// `most`: bytes of the longest value, where they are strings.
void apply(const LabelTable& table, int64_t most, const ValueCall& call) {
  const Tensor& x = call.tensor(0);
  if (table.value_type() == DType::string) {
    call.need(x.numel(), static_cast<int64_t>(sizeof(std::string)) + most);
    call.make_strings(0, x.dims);
  } else {
    call.make(0, table.value_type(), x.dims);
  }
  table.apply(x, call.outputs[0].tensor);
}

/// Two lists that map strings to ints and back, whichever the input asks for.
ValueFunction both_ways(const Tensor& strings, const Tensor& ints, const ValueNode& node) {
  LabelTable to_ints(strings, ints, default_label(node.attributes, DType::i64));
  const Tensor otherwise = default_label(node.attributes, DType::string);
  LabelTable to_strings(ints, strings, otherwise);
  return [to_ints, to_strings, most = longest(strings, otherwise)](const ValueCall& call) {
    apply(call.tensor(0).dtype == DType::string ? to_ints : to_strings, most, call);
  };
}

} // namespace

/// x -> the values of its elements, `default_*` for what is no key.
ValueFunction make_value_label_encoder(const ValueNode& node) {
  const extern_kernels::Labels labels = extern_kernels::read_labels(node.attributes);
  LabelTable table(labels.keys, labels.values, labels.otherwise);
  return [table, most = longest(labels.values, labels.otherwise)](const ValueCall& call) {
    apply(table, most, call);
  };
}

/// The form of ai.onnx.ml 1: a string and its position in `classes_strings`.
ValueFunction make_label_encoder_1(const ValueNode& node) {
  std::vector<std::string> classes = node.texts("classes_strings");
  TBX_MODEL(!classes.empty(), "attribute 'classes_strings' is missing or empty");
  Tensor ids = counted(classes.size());
  return both_ways(list_of(std::move(classes)), ids, node);
}

ValueFunction make_category_mapper(const ValueNode& node) {
  return both_ways(list_of(node.texts("cats_strings")), Tensor::of_ints(node.integers("cats_int64s")), node);
}

/// Strings [...] -> f32 [..., categories].
ValueFunction make_value_one_hot_encoder(const ValueNode& node) {
  std::vector<std::string> categories = node.texts("cats_strings");
  TBX_MODEL(!categories.empty() && !node.has("cats_int64s"),
            "strings need the attribute 'cats_strings' and not 'cats_int64s'");
  bool zeros = node.integer("zeros", 1) != 0;
  std::unordered_map<std::string, size_t> position;
  for (size_t i = 0; i < categories.size(); ++i) position[categories[i]] = i;
  return [=, count = categories.size()](const ValueCall& call) {
    const Tensor& x = call.tensor(0, DType::string);
    std::vector<int64_t> dims = x.dims;
    dims.push_back(static_cast<int64_t>(count));
    auto out = call.make(0, DType::f32, std::move(dims)).as_mutable<float>();
    for (size_t i = 0; i < x.strings->size(); ++i) {
      auto it = position.find((*x.strings)[i]);
      TBX_MODEL(zeros || it != position.end(), "'{}' is none of the {} categories", (*x.strings)[i], count);
      if (it != position.end()) out[i * count + it->second] = 1;
    }
  };
}

} // namespace tbx::runtime
