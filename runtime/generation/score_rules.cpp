#include "runtime/generation/score_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace tbx::runtime {
namespace {

constexpr float kForbidden = std::numeric_limits<float>::lowest();

void forbid(std::span<float> row, int64_t token) {
  if (token >= 0 && token < static_cast<int64_t>(row.size())) row[static_cast<size_t>(token)] = kForbidden;
}

/// Tokens [from, to), as far as there are such.
void forbid(std::span<float> row, int64_t from, int64_t to) {
  const auto size = static_cast<int64_t>(row.size());
  from = std::clamp<int64_t>(from, 0, size);
  to = std::clamp<int64_t>(to, from, size);
  std::fill(row.begin() + from, row.begin() + to, kForbidden);
}

void apply_mask(std::span<float> row, std::span<const int32_t> mask) {
  for (size_t i = 0; i < row.size(); ++i)
    if (mask[i] == 0) row[i] = kForbidden;
}

void check_mask(const Tensor* mask, const char* name, int64_t vocabulary) {
  if (!mask) return;
  TBX_MODEL(mask->dims.back() == vocabulary, "input '{}' is for {} tokens, the vocabulary has {}", name,
            mask->dims.back(), vocabulary);
}

std::span<const int32_t> row_of(const Tensor& t, int64_t i) {
  const auto n = static_cast<size_t>(t.dims.back());
  return t.as<int32_t>().subspan(static_cast<size_t>(i) * n, n);
}

} // namespace

ScoreRules::ScoreRules(const Generation& g, const Settings& s, int64_t vocabulary)
    : g_(g), s_(s), vocabulary_(static_cast<size_t>(vocabulary)) {
  check_mask(s.vocabulary_mask, "vocab_mask", vocabulary);
  check_mask(s.first_mask, "prefix_vocab_mask", vocabulary);
  check_mask(s.presence_mask, "presence_mask", vocabulary);
  TBX_MODEL(g.end < vocabulary, "attribute 'eos_token_id' is {}, the vocabulary has {} tokens", g.end,
            vocabulary);
  TBX_MODEL(!s.timestamps || (g.first_timestamp > 0 && g.first_timestamp < vocabulary),
            "attribute 'beginning_timestamp_token_id' is {}, which is no token of the vocabulary of {}: the "
            "rules of "
            "timestamps need it",
            g.first_timestamp, vocabulary);
}

void ScoreRules::apply(std::span<float> scores, const Sequences& sequences, bool first) const {
  for (int64_t i = 0; i < sequences.rows(); ++i)
    apply_to(scores.subspan(static_cast<size_t>(i) * vocabulary_, vocabulary_), sequences.row(i),
             i / s_.beams, first);
}

void ScoreRules::apply_to(std::span<float> row, std::span<const int32_t> sequence, int64_t batch,
                          bool first) const {
  if (s_.repetition_penalty != 1) {
    std::vector<int32_t> seen(sequence.begin(), sequence.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (int32_t token : seen) {
      if (token < 0 || static_cast<size_t>(token) >= row.size()) continue;
      float& score = row[static_cast<size_t>(token)];
      score = score < 0 ? score * s_.repetition_penalty : score / s_.repetition_penalty;
    }
  }
  if (g_.ngram > 0) forbid_ngrams(row, sequence);
  if (s_.vocabulary_mask) apply_mask(row, row_of(*s_.vocabulary_mask, 0));
  if (s_.first_mask && first) apply_mask(row, row_of(*s_.first_mask, batch));
  if (static_cast<int64_t>(sequence.size()) < s_.min_length) forbid(row, g_.end);
  if (s_.temperature > 0 && s_.temperature != 1)
    for (float& score : row) score /= s_.temperature;
  if (s_.presence_mask && g_.presence_penalty != 0) {
    auto mask = row_of(*s_.presence_mask, batch);
    for (size_t i = 0; i < row.size(); ++i) row[i] -= static_cast<float>(mask[i]) * g_.presence_penalty;
  }
  if (s_.timestamps) place_timestamps(row, sequence);
}

void ScoreRules::forbid_ngrams(std::span<float> row, std::span<const int32_t> sequence) const {
  if (g_.ngram > static_cast<int64_t>(sequence.size())) return;
  const auto n = static_cast<size_t>(g_.ngram);
  auto prefix = sequence.last(n - 1);
  for (size_t i = 0; i + n <= sequence.size(); ++i)
    if (std::equal(prefix.begin(), prefix.end(), sequence.begin() + static_cast<std::ptrdiff_t>(i)))
      forbid(row, sequence[i + n - 1]);
}

// Timestamps stand in pairs and do not decrease; the first is within the first second; where they are
// together more probable than every text token, one of them is taken.
void ScoreRules::place_timestamps(std::span<float> row, std::span<const int32_t> sequence) const {
  constexpr int64_t kLastInitial = 50; // in steps of 20 ms
  const int32_t begin = g_.first_timestamp;
  const auto vocabulary = static_cast<int64_t>(row.size());
  auto is_time = [&](int32_t token) { return token >= begin; };
  auto first_time = std::find_if(sequence.begin(), sequence.end(), is_time);
  const bool has_time = first_time != sequence.end();
  /// Tokens up to the first timestamp, or all.
  const size_t start = static_cast<size_t>(first_time - sequence.begin()) + (has_time ? 1 : 0);

  forbid(row, g_.no_timestamps);
  forbid(row, g_.language_model);
  if (sequence.size() > start)
    for (int32_t token : {g_.start, g_.translate, g_.transcribe}) forbid(row, token);

  const bool last = !sequence.empty() && is_time(sequence.back());
  const bool before_last = sequence.size() <= start || is_time(sequence[sequence.size() - 2]);
  if (last && before_last) forbid(row, begin, vocabulary);
  if (last && !before_last) forbid(row, 0, g_.end);
  if (has_time) {
    int64_t latest = *std::find_if(sequence.rbegin(), sequence.rend(), is_time);
    forbid(row, begin, last && !before_last ? latest : latest + 1);
  }
  if (sequence.size() == start) forbid(row, begin + kLastInitial + 1, vocabulary);

  auto text = row.first(static_cast<size_t>(begin)), times = row.subspan(static_cast<size_t>(begin));
  const float most = *std::max_element(times.begin(), times.end());
  float sum = 0;
  for (float score : times)
    if (score > kForbidden) sum += std::exp(score - most);
  const float together = sum > 0 ? std::log(sum) + most : kForbidden;
  if (together > *std::max_element(text.begin(), text.end())) forbid(row, 0, begin);
}

} // namespace tbx::runtime
