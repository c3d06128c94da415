// Rules that change the scores of the next tokens before one is taken.
#pragma once

#include <span>

#include "runtime/generation/sequences.h"
#include "runtime/generation/settings.h"

namespace tbx::runtime {

/// The rules of one run, applied in ONNX Runtime's order. What a rule forbids gets the lowest float.
class ScoreRules {
public:
  /// Throws Error (model) when masks or tokens do not fit the vocabulary.
  ScoreRules(const Generation& g, const Settings& s, int64_t vocabulary);

  /// `scores`: [rows, vocabulary]; `first`: of the first generated token.
  void apply(std::span<float> scores, const Sequences& sequences, bool first) const;

private:
  void apply_to(std::span<float> row, std::span<const int32_t> sequence, int64_t batch, bool first) const;
  void forbid_ngrams(std::span<float> row, std::span<const int32_t> sequence) const;
  void place_timestamps(std::span<float> row, std::span<const int32_t> sequence) const;

  const Generation& g_;
  const Settings& s_;
  size_t vocabulary_;
};

} // namespace tbx::runtime
