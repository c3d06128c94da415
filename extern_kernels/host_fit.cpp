// What the operands of host operators have to be. What a user may get wrong is checked by lowering, by checks
// of the plan or by the kernels themselves, in their own words.
#include <fmt/format.h>

#include <algorithm>

#include "extern_kernels/attributes.h"
#include "extern_kernels/fit.h"
#include "extern_kernels/host_attribute.h"

namespace tbx::extern_kernels {
namespace {

int64_t elements(const TensorRef& t) { return known_numel(t.sizes); }
int64_t quotient(int64_t a, int64_t b) { return a < 0 ? -1 : a / b; }

/// Names of types, "x": that of the first input, "n": numbers, "f": floats of two bytes and more, "i":
/// integers of four and eight.
bool is_of(std::string_view type, DType given, DType first) {
  if (type == "n") return given != DType::string && !is_complex(given);
  if (type == "f") return given == DType::f32 || given == DType::f64 || is_half(given);
  if (type == "i") return given == DType::i32 || given == DType::i64;
  if (type == "x") return given == first;
  if (type == "bool") return given == DType::boolean;
  return given == (type == "f32"   ? DType::f32
                   : type == "i64" ? DType::i64
                   : type == "i32" ? DType::i32
                                   : DType::u8);
}

void check_det(const HostProblem&, Fit& fit) {
  const auto x = fit.in(0).sizes, y = fit.out(0).sizes;
  fit.require(y.size() + 2 == x.size() && std::equal(y.begin(), y.end(), x.begin(), same_size),
              "a result for each matrix");
}

void check_same_sizes(const HostProblem&, Fit& fit) {
  const auto x = fit.in(0).sizes, y = fit.out(0).sizes;
  fit.require(std::equal(y.begin(), y.end(), x.begin(), x.end(), same_size), "a result of the input's sizes");
}

void check_top_k(const HostProblem& p, Fit& fit) {
  const int64_t axis = integer(p, "axis");
  const auto x = fit.in(0).sizes, values = fit.out(0).sizes, places = fit.out(1).sizes;
  bool fits = axis >= 0 && axis < static_cast<int64_t>(x.size()) && values.size() == x.size() &&
              std::equal(values.begin(), values.end(), places.begin(), places.end(), same_size);
  for (size_t d = 0; fits && d < x.size(); ++d)
    fits = d == static_cast<size_t>(axis) || same_size(x[d], values[d]);
  fit.require(fits, "results along axis {}", axis);
}

void check_one_hot(const HostProblem& p, Fit& fit) {
  const auto categories = static_cast<int64_t>(attribute<std::vector<int64_t>>(p, "categories").size());
  fit.require(same_size(elements(fit.out(0)), times(elements(fit.in(0)), categories)),
              "results for {} categories", categories);
}

/// A row of results for each row of the input; an input of one dimension is a row.
void check_rows(Fit& fit) {
  const auto x = fit.in(0).sizes;
  fit.require(!x.empty(), "no rows");
  fit.derived('r', x.size() == 1 ? 1 : x[0]);
}
void check_svm_regressor(const HostProblem&, Fit& fit) { check_rows(fit); }
void check_svm_classifier(const HostProblem& p, Fit& fit) {
  check_rows(fit);
  const int64_t classes = integer(p, "classes"), pairs = times(classes, classes - 1);
  const auto& prob = attribute<std::shared_ptr<const Tensor>>(p, "prob_a");
  const bool of_classes = integer(p, "vectors") == 0 || prob->numel() > 0;
  fit.derived('s', of_classes ? classes : classes > 2 ? pairs / 2 : 2);
}
void check_trees(const HostProblem& p, Fit& fit) {
  check_rows(fit);
  fit.derived('t', integer(p, "targets"));
}

void check_block_mask(const HostProblem&, Fit& fit) {
  const int64_t starts = fit.size('s');
  fit.require(starts != 0, "no starts of rows");
  fit.derived('r', starts < 0 ? -1 : starts - 1);
}

void check_ngram(const HostProblem& p, Fit& fit) {
  fit.require(integer(p, "ngram_size") > 0, "n-grams without tokens");
}

void check_bifurcation(const HostProblem& p, Fit& fit) {
  fit.require(integer(p, "min_ngram_size") > 0, "n-grams without tokens");
}

void check_sizes(const HostProblem&, Fit& fit) {
  fit.derived('s', static_cast<int64_t>(fit.count_out()));
  for (size_t i = 0; i < fit.count_out(); ++i) fit.output(i, "..");
}

void check_linear_attention(const HostProblem& p, Fit& fit) {
  const int64_t q_heads = integer(p, "q_heads"), heads = integer(p, "kv_heads"),
                slots = std::max<int64_t>(integer(p, "window"), 1);
  fit.require(q_heads > 0 && heads > 0 && (q_heads % heads == 0 || heads % q_heads == 0), "{} and {} heads",
              q_heads, heads);
  if (integer(p, "decays") != 0) fit.input(4, "bt.");
  if (integer(p, "delta") != 0) fit.input(5, "bt.");
  const int64_t q = fit.size('q'), v = fit.size('v');
  fit.require((q < 0 || q % q_heads == 0) && (v < 0 || v % heads == 0), "heads of unequal sizes");
  fit.derived('o', times(quotient(v, heads), std::max(q_heads, heads)));
  const int64_t state =
      times(times(slots, fit.size('b')), times(times(heads, quotient(q, q_heads)), quotient(v, heads)));
  fit.require(same_size(elements(fit.out(1)), state) &&
                  (!fit.has(3) || same_size(elements(fit.in(3)), state)),
              "a state of {} elements", state);
}

/// Operands as "type:sizes", those that may be absent behind a '?'. Types as in is_of, sizes as in Fit.
struct Signature {
  std::string_view domain, op;
  bool allocates; ///< the kernel makes its outputs
  std::string_view inputs, outputs;
  void (*more)(const HostProblem&, Fit&);
};

constexpr std::string_view kMicrosoft = "com.microsoft", kMl = "ai.onnx.ml";
constexpr std::string_view kLinearAttention = "f32:btq f32:btk f32:btv ?f32:* ?f32:bt. ?f32:bt.";

constexpr Signature kSignatures[] = {
    {"", "Compress", true, "n:* bool:*", "x:*", nullptr},
    {"", "DFT", false, "f:*.. i64:1", "x:*..", nullptr},
    {"", "Det", false, "n:*..", "n:*", check_det},
    {"", "ImageDecoder", true, "u8:*", "u8:...", nullptr},
    {"", "LinearAttention", false, kLinearAttention, "f32:bto f32:*", check_linear_attention},
    {"", "NonMaxSuppression", true, "f32:* f32:* ?i64:* ?f32:* ?f32:*", "i64:..", nullptr},
    {"", "NonZero", true, "n:*", "i64:..", nullptr},
    {"", "STFT", false, "f:*.. i64:1", "x:*..", nullptr},
    {"", "TfIdfVectorizer", false, "n:*", "f32:*", nullptr},
    {"", "TopK", false, "n:*", "x:* i64:*", check_top_k},
    {"", "Unique", true, "n:*", "x:* i64:. i64:. i64:.", nullptr},
    {kMl, "LabelEncoder", false, "n:*", "n:*", check_same_sizes},
    {kMl, "OneHotEncoder", false, "n:*", "f32:*", check_one_hot},
    {kMl, "SVMClassifier", false, "n:*", "i64:r f32:rs", check_svm_classifier},
    {kMl, "SVMRegressor", false, "n:*", "f32:r1", check_svm_regressor},
    {kMl, "TreeEnsemble", false, "n:*", "f:rt", check_trees},
    {kMl, "TreeEnsembleClassifier", false, "n:*", "i64:r f32:rt", check_trees},
    {kMl, "TreeEnsembleRegressor", false, "n:*", "f32:rt", check_trees},
    {kMicrosoft, "BifurcationDetector", true, "i64:. i64:. i64:* ?i64:.", "i64:. i64:*", check_bifurcation},
    {kMicrosoft, "DynamicTimeWarping", true, "f32:..", "i32:2.", nullptr},
    {kMicrosoft, "Inverse", false, "n:*..", "n:*..", check_same_sizes},
    {kMicrosoft, "LinearAttention", false, kLinearAttention, "f32:bto f32:*", check_linear_attention},
    {kMicrosoft, "NGramRepeatBlock", false, "i64:.. f32:bv", "f32:bv", check_ngram},
    {kMicrosoft, "SparseAttention", false, "i32:ls i32:l.", "u8:lrr", check_block_mask},
    {"tensorbox", "RandomSeed", false, "", "i64:1", nullptr},
    {"tensorbox", "Sizes", true, "i64:s", "", check_sizes},
};

/// Takes the first operand off the list.
struct Pattern {
  bool optional;
  std::string_view type, sizes;

  explicit Pattern(std::string_view& list) {
    const std::string_view all = list.substr(0, list.find(' '));
    list.remove_prefix(std::min(all.size() + 1, list.size()));
    optional = all.starts_with('?');
    const size_t colon = all.find(':');
    type = all.substr(optional, colon - optional);
    sizes = all.substr(colon + 1);
  }
};

void check(const Signature& s, const HostProblem& p, Fit& fit, bool allocates) {
  std::string_view inputs = s.inputs, outputs = s.outputs;
  const DType first = fit.has(0) ? fit.in(0).dtype : DType::undefined;
  for (size_t i = 0; !inputs.empty(); ++i) {
    const Pattern pattern(inputs);
    if (pattern.optional && !fit.has(i)) continue;
    fit.input(i, pattern.sizes);
    fit.require(is_of(pattern.type, fit.in(i).dtype, first), "input {} is of type {}", i,
                name_of(fit.in(i).dtype));
  }
  if (allocates && fit.count_out() == 0) return; // a run: what will be made was looked at before
  for (size_t i = 0; !outputs.empty(); ++i) {
    const Pattern pattern(outputs);
    fit.output(i, pattern.sizes);
    fit.require(is_of(pattern.type, fit.out(i).dtype, first), "output {} is of type {}", i,
                name_of(fit.out(i).dtype));
  }
  for (size_t i = 0; s.allocates && i < fit.count_out(); ++i)
    fit.require(i < p.output_types.size() && p.output_types[i] == fit.out(i).dtype, "output {} is of type {}",
                i, name_of(fit.out(i).dtype));
  if (s.more) s.more(p, fit);
}

} // namespace

void check_host_fit(const HostProblem& p, Fit& fit, bool allocates) {
  if (p.custom) return; // asks its own code
  const auto* s = std::find_if(std::begin(kSignatures), std::end(kSignatures),
                               [&](const Signature& s) { return s.domain == p.domain && s.op == p.op; });
  if (s == std::end(kSignatures)) return; // no kernel has the name
  fit.require(s->allocates == allocates || fit.count_out() == 0, "results of sizes that are known, or not");
  check(*s, p, fit, allocates);
}

} // namespace tbx::extern_kernels
