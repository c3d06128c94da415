// ai.onnx.ml operators on strings: LabelEncoder, CategoryMapper, OneHotEncoder; TfIdfVectorizer of strings.
#include <algorithm>
#include <unordered_map>

#include "extern_kernels/host/label_table.h"
#include "extern_kernels/host/ngrams.h"
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

void apply(const LabelTable& table, const ValueCall& call) {
  const Tensor& x = call.tensor(0);
  if (table.value_type() == DType::string)
    call.make_strings(0, x.dims);
  else
    call.make(0, table.value_type(), x.dims);
  table.apply(x, call.outputs[0].tensor);
}

/// Two lists that map strings to ints and back, whichever the input asks for.
ValueFunction both_ways(const Tensor& strings, const Tensor& ints, const ValueNode& node) {
  LabelTable to_ints(strings, ints, default_label(node.attributes, DType::i64));
  LabelTable to_strings(ints, strings, default_label(node.attributes, DType::string));
  return [to_ints, to_strings](const ValueCall& call) {
    apply(call.tensor(0).dtype == DType::string ? to_ints : to_strings, call);
  };
}

} // namespace

/// x -> the values of its elements, `default_*` for what is no key.
ValueFunction make_value_label_encoder(const ValueNode& node) {
  const extern_kernels::Labels labels = extern_kernels::read_labels(node.attributes);
  LabelTable table(labels.keys, labels.values, labels.otherwise);
  return [table](const ValueCall& call) { apply(table, call); };
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

/// Strings [C] or [N, C] -> weighted counts of n-grams, f32 [columns] or [N, columns].
ValueFunction make_value_tf_idf(const ValueNode& node) {
  std::vector<std::string> pool = node.texts("pool_strings");
  TBX_MODEL(!pool.empty() && !node.has("pool_int64s"),
            "strings need the attribute 'pool_strings' and not 'pool_int64s'");
  std::vector<int64_t> starts = node.integers("ngram_counts"), columns = node.integers("ngram_indexes");
  int64_t shortest = node.integer("min_gram_length", 0), longest = node.integer("max_gram_length", 0),
          skip = node.integer("max_skip_count", 0);
  TBX_MODEL(shortest > 0 && shortest <= longest && skip >= 0, "n-grams of {} to {} items, {} skipped",
            shortest, longest, skip);
  std::string mode = node.text("mode", "");
  TBX_MODEL(mode == "TF" || mode == "IDF" || mode == "TFIDF", "mode is '{}', expected TF, IDF or TFIDF",
            mode);
  std::vector<double> given = node.reals("weights");
  extern_kernels::NgramTrie<std::string> trie;
  int64_t width = 0;
  for (int64_t c : columns) {
    TBX_MODEL(c >= 0 && c < int64_t{1} << 31, "ngram_indexes holds {}", c);
    width = std::max(width, c + 1);
  }
  TBX_MODEL(given.empty() || given.size() >= columns.size(), "{} weights for {} n-grams", given.size(),
            columns.size());
  std::vector<double> weights(given.empty() ? 0 : static_cast<size_t>(width), 0.0); // by column
  for (size_t i = columns.size(); i-- > 0 && !given.empty();)
    weights[static_cast<size_t>(columns[i])] = given[i];
  auto total = static_cast<int64_t>(pool.size());
  size_t gram = 0;
  for (size_t n = 1; n <= starts.size(); ++n) {
    int64_t begin = starts[n - 1], end = n < starts.size() ? starts[n] : total,
            step = static_cast<int64_t>(n);
    TBX_MODEL(begin >= 0 && begin <= end && end <= total, "ngram_counts does not fit a pool of {} items",
              total);
    for (; begin + step <= end; begin += step, ++gram) {
      TBX_MODEL(gram < columns.size(), "ngram_indexes has only {} entries", columns.size());
      if (step >= shortest && step <= longest)
        trie.add(std::span<const std::string>(pool).subspan(static_cast<size_t>(begin), n), columns[gram]);
    }
  }
  return [=](const ValueCall& call) {
    const Tensor& x = call.tensor(0, DType::string);
    TBX_MODEL(x.dims.size() <= 2, "the input has rank {}, expected 1 or 2", x.dims.size());
    bool matrix = x.dims.size() == 2;
    int64_t rows = matrix ? x.dims[0] : 1;
    size_t length = rows == 0 ? 0 : x.strings->size() / static_cast<size_t>(rows);
    Tensor& y =
        call.make(0, DType::f32, matrix ? std::vector<int64_t>{rows, width} : std::vector<int64_t>{width});
    for (int64_t r = 0; r < rows; ++r) {
      std::span<float> counts =
          y.as_mutable<float>().subspan(static_cast<size_t>(r * width), static_cast<size_t>(width));
      trie.count(std::span<const std::string>(*x.strings).subspan(static_cast<size_t>(r) * length, length),
                 shortest, longest, skip, counts);
      if (mode == "TF") continue;
      for (size_t i = 0; i < counts.size(); ++i) {
        if (mode == "IDF") counts[i] = std::min(counts[i], 1.f);
        if (!weights.empty()) counts[i] *= static_cast<float>(weights[i]);
      }
    }
  };
}

} // namespace tbx::runtime
