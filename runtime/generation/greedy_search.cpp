// One sequence per batch element: GreedySearch and Sampling.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "runtime/generation/token_search.h"

namespace tbx::runtime {
namespace {

/// A sequence that has ended goes on with padding until all have.
class SingleSearch : public TokenSearch {
public:
  explicit SingleSearch(const SearchContext& c) : c_(c), ended_(static_cast<size_t>(c.s.batch)) {
    tokens.resize(ended_.size());
    parents.resize(ended_.size());
    std::iota(parents.begin(), parents.end(), 0);
  }

  void advance(std::span<float> logits) override {
    c_.rules.apply(logits, c_.sequences, c_.sequences.length() == c_.s.prompt);
    const auto n = static_cast<size_t>(c_.vocabulary);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = choose(logits.subspan(i * n, n));
      if (tokens[i] == c_.g.end) ended_[i] = 1;
      if (ended_[i]) tokens[i] = c_.g.pad;
    }
    c_.sequences.append(tokens, parents);
  }

  bool is_done() const override {
    return std::all_of(ended_.begin(), ended_.end(), [](char e) { return e != 0; });
  }

  /// What is not reached, as all sequences ended before, stays 0: so ONNX Runtime's.
  Generated finish() override {
    Generated out;
    out.sequences = Tensor::make(DType::i32, {c_.s.batch, c_.s.max_length});
    for (int64_t i = 0; i < c_.s.batch; ++i) {
      auto row = c_.sequences.row(i);
      std::copy(row.begin(), row.end(), out.sequences.as_mutable<int32_t>().begin() + i * c_.s.max_length);
    }
    return out;
  }

protected:
  virtual int32_t choose(std::span<float> scores) = 0;

  SearchContext c_;

private:
  std::vector<char> ended_;
};

/// The first of the best.
class GreedySearch final : public SingleSearch {
public:
  using SingleSearch::SingleSearch;
  int32_t choose(std::span<float> scores) override {
    return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  }
};

/// A random token of those that make up top_p of the probability.
class Sampling final : public SingleSearch {
public:
  explicit Sampling(const SearchContext& c)
      : SingleSearch(c), order_(static_cast<size_t>(c.vocabulary)), random_(c.s.seed) {}

  void advance(std::span<float> logits) override {
    SingleSearch::advance(logits);
    if (c_.wants_filtered) filtered_.assign(logits.begin(), logits.end());
  }

  Generated finish() override {
    Generated out = SingleSearch::finish();
    if (c_.wants_filtered) {
      out.filtered = Tensor::make(DType::f32, {c_.s.batch, c_.vocabulary});
      std::copy(filtered_.begin(), filtered_.end(), out.filtered.as_mutable<float>().begin());
    }
    return out;
  }

private:
  int32_t choose(std::span<float> scores) override {
    filter(scores);
    return draw(scores);
  }

  /// Gives what lies outside of top_p the score for that. The two ways differ in which token at the border
  /// stays.
  void filter(std::span<float> scores) {
    const size_t n = scores.size();
    const bool down = c_.g.from_the_top;
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return down ? scores[a] > scores[b] : scores[a] < scores[b];
    });
    std::vector<float> p(n);
    const float most = scores[down ? order_[0] : order_[n - 1]];
    float sum = 0;
    for (size_t i = 0; i < n; ++i) sum += p[i] = std::exp(scores[order_[i]] - most);
    float together = 0;
    if (down) {
      for (size_t i = 0; i + 1 < n; ++i)
        if ((together += p[i] / sum) > c_.g.top_p) scores[order_[i + 1]] = c_.g.filtered;
      return;
    }
    const auto kept = static_cast<size_t>(std::min<int64_t>(c_.g.least_kept, static_cast<int64_t>(n)));
    for (size_t i = 0; i < n && (i == 0 || i < n - kept); ++i)
      if ((together += p[i] / sum) <= 1 - c_.g.top_p) scores[order_[i]] = c_.g.filtered;
  }

  /// One number per draw, in the order of the batch: with the same seed, ONNX Runtime draws the same.
  int32_t draw(std::span<const float> scores) {
    float most = std::numeric_limits<float>::lowest();
    for (float score : scores)
      if (std::isfinite(score)) most = std::max(most, score);
    std::vector<double> cumulative(scores.size());
    double sum = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (std::isfinite(scores[i]))
        sum += std::exp(static_cast<double>(scores[i]) - static_cast<double>(most));
      cumulative[i] = sum;
    }
    const double at = std::uniform_real_distribution<double>(0, 1)(random_) * sum;
    auto found = std::upper_bound(cumulative.begin(), cumulative.end(), at);
    if (found == cumulative.end()) --found; // rounding, or no finite score at all
    return static_cast<int32_t>(found - cumulative.begin());
  }

  std::vector<size_t> order_;
  std::vector<float> filtered_;
  std::minstd_rand0 random_; // what libstdc++ calls the default
};

} // namespace

std::unique_ptr<TokenSearch> make_greedy_search(const SearchContext& c) {
  return std::make_unique<GreedySearch>(c);
}
std::unique_ptr<TokenSearch> make_sampling(const SearchContext& c) { return std::make_unique<Sampling>(c); }

} // namespace tbx::runtime
