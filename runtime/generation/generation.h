// Text generation: GreedySearch, Sampling, BeamSearch and WhisperBeamSearch of com.microsoft, which behave as
// ONNX Runtime's. Decoder and encoder are bodies like that of a Loop, compiled once and run once per token;
// which tokens are taken between two runs, and which beams go on, is decided on the host.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/value_op.h"

namespace tbx::runtime {

enum class Search : uint8_t { greedy, sampling, beams };
/// Which bodies there are, and what they take and give.
enum class Family : uint8_t {
  gpt,    ///< a decoder that has the prompt as its first input
  t5,     ///< an encoder of tokens and a decoder
  whisper ///< an encoder of features and a decoder
};

/// The operator and its attributes.
struct Generation {
  Search search = Search::greedy;
  Family family = Family::gpt;
  int32_t end = 0, pad = 0;    ///< tokens: eos_token_id, pad_token_id
  int32_t start = -1;          ///< decoder_start_token_id; -1: none
  int64_t vocabulary = 0;      ///< 0: as many tokens as there are logits
  int64_t ngram = 0;           ///< no sequence of so many tokens twice; 0: no such rule
  bool early_stopping = false; ///< a batch element is done as soon as it has all hypotheses
  float temperature = 1;       ///< Sampling; that of WhisperBeamSearch is an input
  float presence_penalty = 0;  ///< Sampling
  float top_p = 0;             ///< Sampling
  float filtered = -1e20f;     ///< Sampling: the score of tokens that are left out
  int64_t least_kept = 0;      ///< Sampling: tokens that stay whatever top_p says
  bool from_the_top = false;   ///< Sampling: attribute 'custom'
  /// Tokens of Whisper; -1: not given.
  int32_t no_speech = -1, translate = -1, transcribe = -1, language_model = -1, no_timestamps = -1,
          first_timestamp = -1;
};

struct GenerationOp {
  std::string_view name;
  Search search;
  bool whisper;
};
inline constexpr GenerationOp kGenerationOps[] = {{"GreedySearch", Search::greedy, false},
                                                  {"Sampling", Search::sampling, false},
                                                  {"BeamSearch", Search::beams, false},
                                                  {"WhisperBeamSearch", Search::beams, true}};

/// nullptr: another operator.
const GenerationOp* find_generation_op(std::string_view domain, std::string_view op);
/// Throws Error when an attribute is missing or makes no sense. Needs an operator of the list.
Generation read_generation(const ValueNode& node);

struct GenerationStep;
/// ModelError when the bodies do not take and give what the operator's bodies do.
void check_bodies(const GenerationStep& step);

} // namespace tbx::runtime
