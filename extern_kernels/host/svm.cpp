// Support vector machines as libsvm and liblinear compute them: kernel values of a row against all support
// vectors, one decision per pair of classes, votes, and probabilities by pairwise coupling (Wu, Lin, Weng,
// "Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004, method 2).
#include <cmath>

#include "base/budget.h"
#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/ml_scores.h"
#include "extern_kernels/host/svm_kernels.h"
#include "extern_kernels/host/tasks.h"
#include "extern_kernels/host_attribute.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

/// Regressors have no probabilities.
std::vector<float> floats(const HostProblem& p, const char* name) {
  if (p.attributes.count(name) == 0) return {};
  const std::span<const float> values = elements_of<float>(p, name);
  return {values.begin(), values.end()};
}

/// Class probabilities from those of the pairs: r[i * k + j] = P(i | i or j).
void couple(int64_t k, const std::vector<double>& r, std::span<float> result) {
  std::vector<double> q(static_cast<size_t>(k * k), 0), qp(static_cast<size_t>(k)),
      p(static_cast<size_t>(k), 1.0 / k);
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j) {
      if (i == j) continue;
      q[i * k + i] += r[j * k + i] * r[j * k + i];
      q[i * k + j] = -r[j * k + i] * r[i * k + j];
    }
  for (int64_t round = 0; round < std::max<int64_t>(100, k); ++round) {
    double pqp = 0, error = 0;
    for (int64_t i = 0; i < k; ++i) {
      check_stop_often();
      qp[i] = 0;
      for (int64_t j = 0; j < k; ++j) qp[i] += q[i * k + j] * p[j];
      pqp += p[i] * qp[i];
    }
    for (int64_t i = 0; i < k; ++i) error = std::max(error, std::abs(qp[i] - pqp));
    if (error < 0.005 / k) break;
    for (int64_t i = 0; i < k; ++i) {
      check_stop_often();
      double diff = (pqp - qp[i]) / q[i * k + i];
      p[i] += diff;
      pqp = (pqp + diff * (diff * q[i * k + i] + 2 * qp[i])) / ((1 + diff) * (1 + diff));
      for (int64_t j = 0; j < k; ++j) {
        qp[j] = (qp[j] + diff * q[i * k + j]) / (1 + diff);
        p[j] /= 1 + diff;
      }
    }
  }
  for (int64_t i = 0; i < k; ++i) result[i] = static_cast<float>(p[i]);
}

class Svm : public ExternKernel {
public:
  explicit Svm(const HostProblem& p)
      : name_(p.op), coefficients_(floats(p, "coefficients")), rho_(floats(p, "rho")),
        prob_a_(floats(p, "prob_a")), prob_b_(floats(p, "prob_b")) {
    auto integer = [&](const char* name) {
      return p.attributes.count(name) == 0 ? 0 : attribute<int64_t>(p, name);
    };
    kernel_ = static_cast<KernelType>(integer("kernel"));
    transform_ = static_cast<PostTransform>(integer("transform"));
    vectors_ = integer("vectors");
    features_ = integer("features");
    classes_ = integer("classes");
    one_class_ = integer("one_class") != 0;
    if (p.attributes.count("vectors_per_class") != 0)
      per_class_ = attribute<std::vector<int64_t>>(p, "vectors_per_class");
    const std::vector<float> support = floats(p, "support_vectors"), params = floats(p, "kernel_params");
    check(p.op == "SVMClassifier", static_cast<int64_t>(support.size()));
    if (params.size() >= 3) {
      gamma_ = params[0];
      coef0_ = params[1];
      degree_ = params[2];
    }
    kernels_ = vectors_ > 0 ? SvmKernels(kernel_, gamma_, coef0_, degree_, support, vectors_, features_)
                            : SvmKernels(kernel_, gamma_, coef0_, degree_, coefficients_,
                                         std::max<int64_t>(classes_, 1), features_);
    int64_t before = 0;
    for (int64_t n : per_class_) {
      first_.push_back(before);
      before += n;
    }
    all_positive_ = std::all_of(coefficients_.begin(), coefficients_.end(), [](float c) { return c >= 0; });
  }

  std::string description() const override {
    return fmt::format("host {} of {} support vectors", name_, vectors_);
  }

  void run(const RunArgs& args) const override {
    const TensorRef& x = args.inputs[0];
    bool vector = x.sizes.size() == 1;
    int64_t rows = vector ? 1 : x.sizes[0], width = vector ? x.sizes[0] : x.sizes[1];
    TBX_MODEL(width == features_, "{}: vectors of {} features for an input of {}", name_, features_, width);
    auto data = to_dense<float>(x);
    for_each_task(rows, [&](int64_t row) {
      const float* at = data.data() + row * width;
      classes_ ? classify(args, row, at) : regress(args, row, at);
    });
  }

private:
  /// As lowering/ops/ml/svm.cpp makes them.
  void check(bool classifies, int64_t support) const {
    constexpr int64_t kMost = 1 << 30; // products of two do not overflow
    const auto counted = static_cast<int64_t>(coefficients_.size()), rho = static_cast<int64_t>(rho_.size());
    bool fits = vectors_ >= 0 && vectors_ <= kMost && features_ >= 0 && features_ <= kMost && classes_ >= 0 &&
                classes_ <= 1 << 16 && (classifies || classes_ == 0) && rho > 0 &&
                prob_a_.size() == prob_b_.size();
    if (fits && vectors_ == 0)
      fits = counted >= std::max<int64_t>(classes_, 1) * features_;
    else if (fits)
      fits = support >= vectors_ * features_ && counted >= vectors_;
    if (fits && classifies && vectors_ > 0) {
      const int64_t pairs = classes_ * (classes_ - 1) / 2;
      int64_t left = vectors_;
      for (int64_t n : per_class_) {
        fits = fits && n >= 0 && n <= left;
        left -= fits ? n : 0;
      }
      fits = fits && static_cast<int64_t>(per_class_.size()) == classes_ &&
             counted / vectors_ >= classes_ - 1 && rho >= pairs &&
             (prob_a_.empty() || static_cast<int64_t>(prob_a_.size()) >= pairs);
    }
    TBX_MODEL(fits, "the numbers of a call of {} do not fit each other: the package is damaged", name_);
  }

  /// Of the support vectors; of a machine without, its coefficients stand for them.
  const std::vector<float>& kernels(const float* x) const {
    static thread_local std::vector<float> values;
    kernels_(x, values);
    return values;
  }

  void regress(const RunArgs& args, int64_t row, const float* x) const {
    double sum = rho_[0];
    if (vectors_ == 0) {
      sum += kernels(x)[0];
    } else {
      const std::vector<float>& k = kernels(x);
      for (int64_t j = 0; j < vectors_; ++j) sum += double{coefficients_[j]} * k[j];
    }
    float y = one_class_ ? (sum > 0 ? 1.f : -1.f) : static_cast<float>(sum);
    transform_scores<float>(transform_, {&y, 1});
    static_cast<float*>(args.outputs[0].data)[row] = y;
  }

  /// Decision values of all pairs (i, j), i < j, positive for i.
  std::vector<float> decide(const float* x, std::vector<int64_t>& votes) const {
    const std::vector<float>& k = kernels(x);
    std::vector<float> scores;
    for (int64_t i = 0; i < classes_; ++i)
      for (int64_t j = i + 1; j < classes_; ++j) {
        double sum = rho_[scores.size()];
        for (int64_t m = first_[i]; m < first_[i] + per_class_[i]; ++m)
          sum += double{coefficients_[(j - 1) * vectors_ + m]} * k[m];
        for (int64_t m = first_[j]; m < first_[j] + per_class_[j]; ++m)
          sum += double{coefficients_[i * vectors_ + m]} * k[m];
        scores.push_back(static_cast<float>(sum));
        ++votes[sum > 0 ? i : j];
      }
    return scores;
  }

  void classify(const RunArgs& args, int64_t row, const float* x) const {
    auto* label = static_cast<int64_t*>(args.outputs[0].data) + row;
    int64_t columns = args.outputs[1].sizes[1];
    std::span<float> out(static_cast<float*>(args.outputs[1].data) + row * columns,
                         static_cast<size_t>(columns));
    bool probabilities = vectors_ > 0 && !prob_a_.empty();
    if (vectors_ == 0) {
      const std::vector<float>& k = kernels(x);
      for (int64_t c = 0; c < classes_; ++c) out[c] = k[c] + rho_[0];
      auto best = std::max_element(out.begin(), out.end());
      *label = best - out.begin();
      if (classes_ == 2 && (all_positive_ ? *best >= 0.5f : *best > 0)) *label = 1;
      transform_scores<float>(transform_, out);
      return;
    }
    std::vector<int64_t> votes(static_cast<size_t>(classes_), 0);
    std::vector<float> scores = decide(x, votes);
    *label = std::max_element(votes.begin(), votes.end()) - votes.begin();
    if (probabilities) {
      std::vector<double> pair(static_cast<size_t>(classes_ * classes_), 0);
      size_t at = 0;
      for (int64_t i = 0; i < classes_; ++i)
        for (int64_t j = i + 1; j < classes_; ++j, ++at) {
          double p = std::clamp(1 - logistic(double{scores[at]} * prob_a_[at] + prob_b_[at]), 1e-7, 1 - 1e-7);
          pair[i * classes_ + j] = p;
          pair[j * classes_ + i] = 1 - p;
        }
      couple(classes_, pair, out);
      transform_scores<float>(transform_, out);
    } else if (classes_ <= 2) {
      float s = scores.empty() ? 0 : scores[0];
      bool squash = transform_ == PostTransform::logistic, plain = transform_ == PostTransform::none;
      out[0] = squash ? logistic(-s) : plain ? -s : 1 - s; // the columns of ONNX Runtime
      out[1] = squash ? logistic(s) : s;
    } else {
      std::copy(scores.begin(), scores.end(), out.begin());
      transform_scores<float>(transform_, out);
    }
  }

  std::string name_;
  KernelType kernel_;
  PostTransform transform_;
  double gamma_ = 0, coef0_ = 0, degree_ = 0;
  int64_t vectors_, features_, classes_;
  bool one_class_, all_positive_;
  std::vector<int64_t> per_class_, first_;
  std::vector<float> coefficients_, rho_, prob_a_, prob_b_;
  SvmKernels kernels_;
};

} // namespace

/// x [N, F] -> scores [N, 1], or class indices [N] and scores [N, classes or pairs].
std::unique_ptr<ExternKernel> make_svm(const HostProblem& p) { return std::make_unique<Svm>(p); }

} // namespace tbx::extern_kernels
