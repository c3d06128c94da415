// SVMRegressor and SVMClassifier: attributes checked, then a host kernel (extern_kernels/host/svm.cpp).
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/ml/ml.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;
using extern_kernels::Attributes;

std::shared_ptr<const Tensor> floats(const OpContext& ctx, const char* name) {
  std::vector<float> values = ctx.attr_floats(name);
  Tensor t = Tensor::make(DType::f32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as_mutable<float>().begin());
  return std::make_shared<const Tensor>(std::move(t));
}

/// Attributes of both operators; `vectors` support vectors, none in linear mode with `rows` rows of
/// coefficients.
Attributes common(OpContext& ctx, int64_t vectors, int64_t rows) {
  auto coefficients = floats(ctx, "coefficients"), support = floats(ctx, "support_vectors");
  int64_t count = vectors > 0 ? support->numel() : coefficients->numel(), of = vectors > 0 ? vectors : rows;
  TBX_MODEL(coefficients->numel() > 0, "attribute 'coefficients' is missing or empty");
  TBX_MODEL(of > 0 && count % of == 0, "{} numbers for {} vectors", count, of);
  std::string kernel = ctx.attr_string("kernel_type", "LINEAR");
  static const std::vector<std::string> kernels = {"LINEAR", "POLY", "RBF", "SIGMOID"};
  auto it = std::find(kernels.begin(), kernels.end(), kernel);
  TBX_MODEL(it != kernels.end(), "unknown kernel_type '{}'", kernel);
  auto params = floats(ctx, "kernel_params");
  TBX_MODEL(params->numel() == 0 || params->numel() == 3, "kernel_params has {} entries, expected 3",
            params->numel());
  auto rho = floats(ctx, "rho");
  TBX_MODEL(rho->numel() > 0, "attribute 'rho' is missing or empty");
  TensorBox x = rows_of(ctx);
  int64_t features = count / of;
  if (auto width = x.sizes()[1].as_constant())
    TBX_MODEL(*width == features, "vectors of {} features for an input of {}", features, *width);
  return {{"coefficients", coefficients},
          {"support_vectors", support},
          {"rho", rho},
          {"kernel_params", params},
          {"kernel", vectors > 0 ? static_cast<int64_t>(it - kernels.begin()) : int64_t{0}},
          {"vectors", vectors},
          {"features", features},
          {"transform", static_cast<int64_t>(post_transform(ctx))}};
}

Values svm_regressor(OpContext& ctx) {
  int64_t vectors = ctx.attr_int("n_supports", 0);
  TBX_MODEL(vectors >= 0, "n_supports is {}", vectors);
  Attributes a = common(ctx, vectors, 1);
  int64_t given = std::get<std::shared_ptr<const Tensor>>(a["coefficients"])->numel();
  TBX_MODEL(vectors == 0 || given >= vectors, "{} coefficients for {} support vectors", given, vectors);
  a["one_class"] = ctx.attr_int("one_class", 0);
  return host_call(ctx, {{DType::f32, {rows_of(ctx).sizes()[0], 1}}}, std::move(a));
}

Values svm_classifier(OpContext& ctx) {
  ClassLabels labels = class_labels(ctx, "classlabels_ints", "classlabels_strings");
  int64_t classes = labels.size(), pairs = classes * (classes - 1) / 2, vectors = 0;
  TBX_MODEL(classes < 65536, "{} classes", classes);
  std::vector<int64_t> per_class = ctx.attr_ints("vectors_per_class");
  for (int64_t n : per_class) {
    TBX_MODEL(n >= 0 && n <= INT32_MAX, "vectors_per_class has an entry {}", n);
    vectors += n;
  }
  Attributes a = common(ctx, vectors, classes);
  auto count = [&](const char* name) { return std::get<std::shared_ptr<const Tensor>>(a.at(name))->numel(); };
  a["prob_a"] = floats(ctx, "prob_a");
  a["prob_b"] = floats(ctx, "prob_b");
  bool probabilities = count("prob_a") > 0;
  TBX_MODEL(count("prob_a") == count("prob_b"), "prob_a and prob_b have {} and {} entries", count("prob_a"),
            count("prob_b"));
  SymInt scores = classes;
  if (vectors > 0) {
    TBX_MODEL(static_cast<int64_t>(per_class.size()) == classes,
              "vectors_per_class has {} entries for {} classes", per_class.size(), classes);
    TBX_MODEL(count("coefficients") / vectors >= classes - 1, "{} coefficients for {} vectors and {} classes",
              count("coefficients"), vectors, classes);
    TBX_MODEL(count("rho") >= pairs, "rho has {} entries for {} pairs of classes", count("rho"), pairs);
    TBX_MODEL(!probabilities || count("prob_a") >= pairs, "prob_a has {} entries for {} pairs of classes",
              count("prob_a"), pairs);
    if (!probabilities) scores = classes > 2 ? pairs : 2;
  }
  a["vectors_per_class"] = std::move(per_class);
  a["classes"] = classes;
  SymInt n = rows_of(ctx).sizes()[0];
  Values out = host_call(ctx, {{DType::i64, {n}}, {DType::f32, {n, scores}}}, std::move(a));
  return {labels_of(ctx, out[0].tensor, labels), out[1]};
}

} // namespace

void register_ml_svm(Registry& r) {
  r.add("SVMRegressor", since(1), svm_regressor, kMl);
  r.add("SVMClassifier", since(1), svm_classifier, kMl);
  r.labels_in("classlabels_ints", "SVMClassifier", kMl);
}

} // namespace tbx::lowering
