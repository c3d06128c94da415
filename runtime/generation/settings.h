// What one run of a generating operator asks for: its inputs, checked.
#pragma once

#include <cstdint>
#include <span>

#include "base/tensor.h"
#include "runtime/generation/generation.h"
#include "runtime/value_frame.h"

namespace tbx::runtime {

struct Settings {
  int64_t batch = 0;
  int64_t prompt = 0; ///< tokens before the first generated one
  int64_t max_length = 0, min_length = 0;
  int64_t beams = 1, returned = 1;
  float length_penalty = 1, repetition_penalty = 1, temperature = 1;
  bool timestamps = false; ///< Whisper's rules of where timestamps may stand
  uint32_t seed = 0;
  const Tensor* input = nullptr; ///< tokens [batch, length], or features [batch, ...]
  /// Left out: nullptr. Like `input`; of the encoder in models that have one.
  const Tensor* attention_mask = nullptr;
  const Tensor* decoder_input = nullptr; ///< Whisper: tokens [batch, prompt]
  /// [vocabulary], [batch, vocabulary], [batch, vocabulary]; nullptr: left out.
  const Tensor *vocabulary_mask = nullptr, *first_mask = nullptr, *presence_mask = nullptr;

  int64_t rows() const { return batch * beams; }
};

/// Throws Error (model). The tensors stay those of the frame.
Settings read_settings(const Generation& g, const ValueStep& step, const ValueFrame& frame);

} // namespace tbx::runtime
