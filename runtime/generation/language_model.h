// The bodies of a generating operator as one function: tokens in, logits out, what is remembered in between.
#pragma once

#include <memory>
#include <span>

#include "runtime/generation/sequences.h"
#include "runtime/generation/settings.h"

namespace tbx::runtime {

class LanguageModel {
public:
  virtual ~LanguageModel() = default;
  /// The tokens that the sequences start with, [batch, Settings::prompt]. Called first.
  virtual Tensor prompt() = 0;
  /// Logits [batch or rows, any length, vocabulary], of which the last are those of the next tokens: behind
  /// the prompt, then behind `tokens`, which continue what `parents` were.
  virtual Tensor start() = 0;
  virtual Tensor next(std::span<const int32_t> tokens, std::span<const int32_t> parents,
                      const Sequences& sequences) = 0;
};

/// What a model needs from the run; lives as long as it.
struct ModelContext {
  const GenerationStep& step;
  const Settings& s;
  ValueFrame& frame;
  size_t number; ///< of the step
  const RunGuard& guard;
};

std::unique_ptr<LanguageModel> make_decoder_only(const ModelContext& context);
std::unique_ptr<LanguageModel> make_encoder_decoder(const ModelContext& context);

void check_decoder_only(const GenerationStep& step);
void check_encoder_decoder(const GenerationStep& step);

} // namespace tbx::runtime
