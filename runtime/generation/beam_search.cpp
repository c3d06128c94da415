// BeamSearch: per batch element as many sequences as there are beams, and the hypotheses that have ended.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "runtime/generation/token_search.h"

namespace tbx::runtime {
namespace {

/// Sequences of a batch element that have ended, the best first, no more than beams.
class Hypotheses {
public:
  Hypotheses(int64_t most, float length_penalty)
      : most_(static_cast<size_t>(most)), length_penalty_(length_penalty) {}

  void add(std::span<const int32_t> sequence, float sum) {
    const float score = penalized(sum, static_cast<int64_t>(sequence.size()));
    if (is_full() && !(score > all_.back().score)) return;
    if (is_full()) all_.pop_back();
    auto better = [&](const Hypothesis& h) { return h.score >= score || std::isnan(score); };
    all_.insert(std::find_if_not(all_.begin(), all_.end(), better),
                {{sequence.begin(), sequence.end()}, score});
  }

  bool is_full() const { return all_.size() == most_; }
  /// A sequence of this sum could still become one of the best. Needs is_full().
  bool may_improve(float sum, int64_t length) const { return all_.back().score < penalized(sum, length); }

  size_t size() const { return all_.size(); }
  const std::vector<int32_t>& sequence(size_t i) const { return all_[i].sequence; }
  float score(size_t i) const { return all_[i].score; }

  bool done = false;

private:
  struct Hypothesis {
    std::vector<int32_t> sequence;
    float score;
  };
  float penalized(float sum, int64_t length) const {
    return sum / std::pow(static_cast<float>(length), length_penalty_);
  }

  size_t most_;
  float length_penalty_;
  std::vector<Hypothesis> all_;
};

struct Candidate {
  float score;
  int64_t index; ///< beam * vocabulary + token
};

/// The `count` best of `scores`, the best first; of equal ones the first. Needs so many scores.
void find_best(std::span<const float> scores, size_t count, std::vector<Candidate>& best) {
  auto better = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  };
  best.clear();
  for (size_t i = 0; i < scores.size(); ++i) {
    const float score = std::isnan(scores[i]) ? std::numeric_limits<float>::lowest() : scores[i];
    if (best.size() == count && !(score > best.front().score)) continue;
    if (best.size() == count) {
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back({score, static_cast<int64_t>(i)});
    std::push_heap(best.begin(), best.end(), better); // the worst in front
  }
  std::sort_heap(best.begin(), best.end(), better);
}

void log_softmax(std::span<float> row) {
  const float most = *std::max_element(row.begin(), row.end());
  float sum = 0;
  for (float x : row) sum += std::exp(x - most);
  const float shift = most + std::log(sum);
  for (float& x : row) x -= shift;
}

class BeamSearch final : public TokenSearch {
public:
  explicit BeamSearch(const SearchContext& c)
      : c_(c), sums_(static_cast<size_t>(c.s.rows())),
        hypotheses_(static_cast<size_t>(c.s.batch), Hypotheses(c.s.beams, c.s.length_penalty)),
        candidates_(static_cast<size_t>(c.s.batch)) {
    TBX_MODEL(c.vocabulary > 1, "a vocabulary of one token leaves no beam to go on with");
    tokens.resize(sums_.size());
    parents.resize(sums_.size());
    // All beams start with the same tokens: only the first may go on at the first step.
    for (size_t i = 0; i < sums_.size(); ++i)
      sums_[i] = i % static_cast<size_t>(c.s.beams) == 0 ? 0.0F : -1e9F;
    if (c.wants_scores)
      scores_ = Tensor::make(DType::f32, {c.s.max_length - c.s.prompt, c.s.batch, c.s.beams, c.vocabulary});
  }

  void advance(std::span<float> logits) override {
    const auto n = static_cast<size_t>(c_.vocabulary), beams = static_cast<size_t>(c_.s.beams);
    for (size_t i = 0; i < sums_.size(); ++i) log_softmax(logits.subspan(i * n, n));
    c_.rules.apply(logits, c_.sequences, c_.sequences.length() == c_.s.prompt);
    for (size_t i = 0; i < sums_.size(); ++i)
      for (float& x : logits.subspan(i * n, n)) x += sums_[i];
    if (c_.wants_scores)
      std::copy(logits.begin(), logits.end(),
                scores_.as_mutable<float>().begin() +
                    (c_.sequences.length() - c_.s.prompt) * static_cast<std::ptrdiff_t>(logits.size()));
    for (size_t b = 0; b < hypotheses_.size(); ++b)
      find_best(logits.subspan(b * beams * n, beams * n), 2 * beams, candidates_[b]);
    for (size_t b = 0; b < hypotheses_.size(); ++b) go_on(b);
    c_.sequences.append(tokens, parents);
  }

  bool is_done() const override {
    return std::all_of(hypotheses_.begin(), hypotheses_.end(), [](const Hypotheses& h) { return h.done; });
  }

  Generated finish() override {
    const int64_t returned = c_.s.returned, length = c_.s.max_length;
    Generated out;
    out.sequences = Tensor::make(DType::i32, {c_.s.batch, returned, length});
    out.sequence_scores = Tensor::make(DType::f32, {c_.s.batch, returned});
    out.scores = std::move(scores_);
    auto to = out.sequences.as_mutable<int32_t>();
    std::fill(to.begin(), to.end(), c_.g.pad);
    for (int64_t b = 0; b < c_.s.batch; ++b) {
      Hypotheses& h = hypotheses_[static_cast<size_t>(b)];
      for (int64_t k = b * c_.s.beams; !h.done && k < (b + 1) * c_.s.beams; ++k)
        h.add(c_.sequences.row(k), sums_[static_cast<size_t>(k)]);
      for (size_t i = 0; i < static_cast<size_t>(returned) && i < h.size(); ++i) {
        const int64_t row = b * returned + static_cast<int64_t>(i);
        std::copy(h.sequence(i).begin(), h.sequence(i).end(), to.begin() + row * length);
        out.sequence_scores.as_mutable<float>()[static_cast<size_t>(row)] = h.score(i);
      }
    }
    return out;
  }

private:
  void go_on(size_t b) {
    const auto beams = static_cast<size_t>(c_.s.beams);
    Hypotheses& h = hypotheses_[b];
    size_t taken = 0;
    auto take = [&](float sum, int32_t token, size_t parent) {
      sums_[b * beams + taken] = sum;
      tokens[b * beams + taken] = token;
      parents[b * beams + taken++] = static_cast<int32_t>(parent);
    };
    if (h.done) {
      while (taken < beams) take(0, c_.g.pad, 0);
      return;
    }
    for (size_t j = 0; taken < beams; ++j) { // every beam ends at most once: there are enough
      const Candidate& candidate = candidates_[b][j];
      const size_t parent = b * beams + static_cast<size_t>(candidate.index / c_.vocabulary);
      const auto token = static_cast<int32_t>(candidate.index % c_.vocabulary);
      if (token != c_.g.end)
        take(candidate.score, token, parent);
      else if (j < beams) // as one of the best only
        h.add(c_.sequences.row(static_cast<int64_t>(parent)), candidate.score);
    }
    h.done = h.is_full() && (c_.g.early_stopping || !h.may_improve(best_near(b), c_.sequences.length()));
  }

  /// ONNX Runtime looks at so many candidates from place b * beams on, where those of element b start at
  /// twice that: the same for a batch of one.
  float best_near(size_t b) const {
    const auto beams = static_cast<size_t>(c_.s.beams), each = 2 * beams;
    float best = std::numeric_limits<float>::lowest();
    for (size_t i = b * beams; i < b * beams + each; ++i)
      best = std::max(best, candidates_[i / each][i % each].score);
    return best;
  }

  SearchContext c_;
  std::vector<float> sums_; ///< per sequence: of the logarithms of its tokens' probabilities
  std::vector<Hypotheses> hypotheses_;
  std::vector<std::vector<Candidate>> candidates_; ///< per batch element
  Tensor scores_;
};

} // namespace

std::unique_ptr<TokenSearch> make_beam_search(const SearchContext& c) {
  return std::make_unique<BeamSearch>(c);
}

} // namespace tbx::runtime
