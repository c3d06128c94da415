// Which tokens are taken: the best one per sequence, a random one, or those of the best beams.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/generation/score_rules.h"

namespace tbx::runtime {

/// The outputs of the operator, as far as the search makes them; empty dims: none.
struct Generated {
  Tensor sequences; ///< int32
  Tensor sequence_scores, scores, filtered;
};

class TokenSearch {
public:
  virtual ~TokenSearch() = default;
  /// Takes the next tokens and appends them. `logits`: [rows, vocabulary], changed on the way.
  virtual void advance(std::span<float> logits) = 0;
  /// Nothing that follows could change the result.
  virtual bool is_done() const = 0;
  virtual Generated finish() = 0;

  /// What advance appended: per sequence the token, and the sequence it continues.
  std::vector<int32_t> tokens, parents;
};

/// What all searches work with; lives as long as they.
struct SearchContext {
  const Generation& g;
  const Settings& s;
  const ScoreRules& rules;
  Sequences& sequences;
  int64_t vocabulary;
  bool wants_scores, wants_filtered;
};

std::unique_ptr<TokenSearch> make_greedy_search(const SearchContext& context);
std::unique_ptr<TokenSearch> make_sampling(const SearchContext& context);
std::unique_ptr<TokenSearch> make_beam_search(const SearchContext& context);

} // namespace tbx::runtime
