// TfIdfVectorizer over integers: counts of n-grams per row, weighted.
#include <algorithm>

#include "base/error.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/ngrams.h"
#include "extern_kernels/host_attribute.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {
namespace {

class TfIdf : public ExternKernel {
public:
  explicit TfIdf(const HostProblem& p)
      : mode_(attribute<std::string>(p, "mode")), weights_(attribute<std::vector<double>>(p, "weights")) {
    auto integer = [&](const char* name) { return attribute<int64_t>(p, name); };
    shortest_ = integer("min_gram_length");
    longest_ = integer("max_gram_length");
    max_skip_ = integer("max_skip_count");
    const auto& pool = attribute<std::vector<int64_t>>(p, "pool");
    const auto& starts = attribute<std::vector<int64_t>>(p, "ngram_counts");
    const auto& columns = attribute<std::vector<int64_t>>(p, "ngram_indexes");
    // Lowering has checked all this; a package's file may say anything.
    auto check = [](bool fits, const char* what) {
      TBX_MODEL(fits, "{} of a call of TfIdfVectorizer do not fit: the package is damaged", what);
    };
    check(shortest_ > 0 && shortest_ <= longest_ && max_skip_ >= 0, "lengths of n-grams");
    const auto total = static_cast<int64_t>(pool.size());
    size_t gram = 0;
    for (size_t n = 1; n <= starts.size(); ++n) {
      const int64_t end = n < starts.size() ? starts[n] : total;
      check(starts[n - 1] >= 0 && starts[n - 1] <= end && end <= total, "ngram_counts");
      for (auto begin = static_cast<size_t>(starts[n - 1]); begin + n <= static_cast<size_t>(end);
           begin += n, ++gram) {
        check(gram < columns.size() && columns[gram] >= 0, "ngram_indexes");
        last_column_ = std::max(last_column_, columns[gram]);
        if (static_cast<int64_t>(n) >= shortest_ && static_cast<int64_t>(n) <= longest_)
          trie_.add(std::span(pool).subspan(begin, n), columns[gram]);
      }
    }
  }

  std::string description() const override { return "host TfIdfVectorizer " + mode_; }

  void run(const RunArgs& args) const override {
    const TensorRef &x = args.inputs[0], &y = args.outputs[0];
    const size_t rank = x.sizes.size();
    const bool fits = rank <= 2 && y.sizes.size() == std::max<size_t>(rank, 1) && y.dtype == DType::f32 &&
                      y.sizes.back() > last_column_ && (rank < 2 || y.sizes[0] == x.sizes[0]) &&
                      (weights_.empty() || static_cast<int64_t>(weights_.size()) >= y.sizes.back());
    TBX_MODEL(fits, "operands of a call of TfIdfVectorizer do not fit: the package is damaged");
    auto tokens = to_dense<int64_t>(x);
    int64_t rows = rank == 2 ? x.sizes[0] : 1, columns = y.sizes.back();
    auto length = static_cast<size_t>(rows == 0 ? 0 : x.numel() / rows);
    auto* out = static_cast<float*>(y.data);
    std::fill(out, out + y.numel(), 0.f);
    for (int64_t r = 0; r < rows; ++r) {
      std::span<float> counts(out + r * columns, static_cast<size_t>(columns));
      trie_.count(std::span(tokens).subspan(static_cast<size_t>(r) * length, length), shortest_, longest_,
                  max_skip_, counts);
      weigh(counts);
    }
  }

private:
  void weigh(std::span<float> counts) const {
    if (mode_ == "TF") return;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (mode_ == "IDF") counts[i] = std::min(counts[i], 1.f);
      if (!weights_.empty()) counts[i] *= static_cast<float>(weights_[i]);
    }
  }

  std::string mode_;
  std::vector<double> weights_;
  int64_t shortest_, longest_, max_skip_, last_column_ = -1;
  NgramTrie<int64_t> trie_;
};

} // namespace

/// x [C] or [N, C] -> f32 [columns] or [N, columns]; attributes checked by the lowering.
std::unique_ptr<ExternKernel> make_tf_idf(const HostProblem& p) { return std::make_unique<TfIdf>(p); }

} // namespace tbx::extern_kernels
