// Models with an encoder: T5, Whisper and their like.
//
// Encoder: encoder_input_ids, encoder_attention_mask (not Whisper), decoder_input_ids -> logits,
// encoder_hidden_states, then per layer present_key_self_i, present_value_self_i, then per layer
// present_key_cross_i, present_value_cross_i. T5 may leave out decoder_input_ids: then only the last are
// outputs, and the decoder starts without a past. Decoder: input_ids, encoder_input_ids (only where it copies
// words of the text), encoder_attention_mask (not Whisper), encoder_hidden_states (may be left out),
// past_key_self_i, past_value_self_i, then past_key_cross_i, past_value_cross_i -> logits,
// present_key_self_i, present_value_self_i.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/generation/body.h"
#include "runtime/generation/language_model.h"

namespace tbx::runtime {
namespace {

bool has_mask(const GenerationStep& s) { return s.what.family == Family::t5; }

bool decoder_takes(const GenerationStep& s, size_t at, const char* name) {
  return num_inputs(s.decoder) > at && s.decoder.plan->inputs[at].name == name;
}

/// The decoder reads the text itself: a pointer-generator network.
bool has_text(const GenerationStep& s) { return has_mask(s) && decoder_takes(s, 1, "encoder_input_ids"); }

size_t mask_place(const GenerationStep& s) { return has_text(s) ? 2 : 1; }

bool has_hidden_states(const GenerationStep& s) {
  return decoder_takes(s, mask_place(s) + (has_mask(s) ? 1 : 0), "encoder_hidden_states");
}

size_t first_past(const GenerationStep& s) {
  return mask_place(s) + (has_mask(s) ? 1 : 0) + (has_hidden_states(s) ? 1 : 0);
}

bool encoder_starts(const GenerationStep& s) { return !has_mask(s) || num_inputs(s.first) == 3; }

/// Layers of keys and values.
size_t num_self(const GenerationStep& s) { return s.decoder.plan->outputs.size() - 1; }

class EncoderDecoder final : public LanguageModel {
public:
  explicit EncoderDecoder(const ModelContext& c) : c_(c), decoder_(c.step.decoder, false, c.frame, c.number) {
    const ValueEntry& ids = c.step.decoder.plan->inputs[0];
    takes_all_tokens_ = !(ids.ranked && ids.element.dims.size() == 2 && ids.element.dims[1] == 1);
  }

  Tensor prompt() override {
    if (c_.s.decoder_input) return *c_.s.decoder_input;
    Tensor start = integers({c_.s.batch, 1});
    auto to = start.as_mutable<int32_t>();
    std::fill(to.begin(), to.end(), c_.step.what.start);
    return start;
  }

  Tensor start() override {
    std::vector<Tensor> inputs{*c_.s.input};
    if (has_text(c_.step)) text_ = *c_.s.input;
    if (has_mask(c_.step)) inputs.push_back(mask_ = encoder_mask());
    const bool starts = encoder_starts(c_.step);
    if (starts) inputs.push_back(prompt());
    std::vector<Tensor> made;
    {
      Body encoder(c_.step.first, true, c_.frame, c_.number);
      made = encoder.run(inputs, c_.guard);
    }
    const size_t self = num_self(c_.step);
    auto at = made.begin();
    Tensor logits;
    if (starts) {
      logits = std::move(*at++);
      hidden_ = std::move(*at++);
      self_.assign(at, at + static_cast<std::ptrdiff_t>(self));
      at += static_cast<std::ptrdiff_t>(self);
    }
    cross_.assign(at, made.end());
    return starts ? logits : run(prompt(), identity(c_.s.batch), c_.s.batch);
  }

  Tensor next(std::span<const int32_t> tokens, std::span<const int32_t> parents,
              const Sequences& sequences) override {
    const int64_t rows = c_.s.rows();
    Tensor ids = integers({rows, takes_all_tokens_ ? sequences.length() : 1});
    auto to = ids.as_mutable<int32_t>().begin();
    for (int64_t i = 0; i < rows; ++i) {
      auto row = sequences.row(i);
      to = takes_all_tokens_ ? std::copy(row.begin(), row.end(), to) : std::copy_n(tokens.begin() + i, 1, to);
    }
    std::vector<int32_t> from(parents.begin(), parents.end());
    const bool first = !expanded_;
    if (first) { // what is remembered is still that of the batch elements
      for (int32_t& p : from) p /= static_cast<int32_t>(c_.s.beams);
      std::vector<int32_t> elements = identity(rows);
      for (int32_t& e : elements) e /= static_cast<int32_t>(c_.s.beams);
      if (has_text(c_.step)) text_ = take_rows(text_, 0, elements, c_.s.batch, "encoder_input_ids");
      if (has_mask(c_.step)) mask_ = take_rows(mask_, 0, elements, c_.s.batch, "encoder_attention_mask");
      if (has_hidden_states(c_.step))
        hidden_ = take_rows(hidden_, 0, elements, c_.s.batch, "encoder_hidden_states");
      for (Tensor& t : cross_) t = take_rows(t, 0, elements, c_.s.batch, "an output of the encoder");
      expanded_ = true;
    }
    return run(std::move(ids), from, first ? c_.s.batch : rows);
  }

private:
  static std::vector<int32_t> identity(int64_t n) {
    std::vector<int32_t> all(static_cast<size_t>(n));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    return all;
  }

  /// `from`: per row the one of `known` that it continues.
  Tensor run(Tensor ids, std::span<const int32_t> from, int64_t known) {
    std::vector<Tensor> inputs{std::move(ids)};
    if (has_text(c_.step)) inputs.push_back(text_);
    if (has_mask(c_.step)) inputs.push_back(mask_);
    if (has_hidden_states(c_.step)) inputs.push_back(hidden_);
    if (self_.empty()) self_ = no_past();
    for (const Tensor& t : self_) inputs.push_back(take_rows(t, 0, from, known, "the past of the decoder"));
    inputs.insert(inputs.end(), cross_.begin(), cross_.end());
    self_.clear();
    std::vector<Tensor> outputs = decoder_.run(inputs, c_.guard);
    Tensor logits = std::move(outputs[0]);
    self_.assign(std::make_move_iterator(outputs.begin() + 1), std::make_move_iterator(outputs.end()));
    return logits;
  }

  std::vector<Tensor> no_past() const {
    std::vector<Tensor> past;
    for (size_t i = first_past(c_.step); i < first_past(c_.step) + num_self(c_.step); ++i) {
      const ValueEntry& e = c_.step.decoder.plan->inputs[i];
      std::vector<int64_t> dims = e.element.dims;
      dims[0] = c_.s.batch;
      dims[2] = 0;
      past.push_back(Tensor::make(e.dtype, std::move(dims)));
    }
    return past;
  }

  /// Padding is left out, but only in front: the token for the end is padding for some models.
  Tensor encoder_mask() const {
    if (c_.s.attention_mask) return *c_.s.attention_mask;
    Tensor mask = integers(c_.s.input->dims);
    const int64_t length = c_.s.input->dims[1];
    auto ids = c_.s.input->as<int32_t>();
    for (int64_t b = 0; b < c_.s.batch; ++b) {
      auto row = ids.subspan(static_cast<size_t>(b * length), static_cast<size_t>(length));
      auto text = std::find_if(row.begin(), row.end(), [&](int32_t id) { return id != c_.step.what.pad; });
      auto to = mask.as_mutable<int32_t>().begin() + b * length;
      std::fill(to + (text - row.begin()), to + length, 1);
    }
    return mask;
  }

  ModelContext c_;
  Body decoder_;
  bool takes_all_tokens_ = false, expanded_ = false;
  Tensor text_, mask_, hidden_;
  std::vector<Tensor> self_, cross_;
};

void check_encoder(const GenerationStep& s) {
  const size_t self = num_self(s), outputs = s.first.plan->outputs.size();
  check_names(s.first, "encoder", 0, {"encoder_input_ids"});
  size_t inputs = 1;
  if (has_mask(s)) {
    check_names(s.first, "encoder", inputs, {"encoder_attention_mask"});
    check_integers(s.first, "encoder", 0);
    check_integers(s.first, "encoder", inputs++);
  }
  const bool starts = encoder_starts(s);
  if (starts) {
    check_names(s.first, "encoder", inputs, {"decoder_input_ids"});
    check_integers(s.first, "encoder", inputs++);
  }
  const size_t expected = starts ? 2 + 2 * self : self;
  TBX_MODEL(num_inputs(s.first) == inputs && outputs == expected,
            "the encoder has {} inputs and {} outputs, expected {} and {} for the {} layers of the decoder",
            num_inputs(s.first), outputs, inputs, expected, self / 2);
  for (size_t i = 0; i < outputs; ++i) check_floats(s.first, "encoder", i, starts && i < 2 ? 3 : 4);
  TBX_MODEL(starts || !has_hidden_states(s), "the decoder takes 'encoder_hidden_states', which an encoder "
                                             "without 'decoder_input_ids' does not give");
}

} // namespace

std::unique_ptr<LanguageModel> make_encoder_decoder(const ModelContext& c) {
  return std::make_unique<EncoderDecoder>(c);
}

void check_encoder_decoder(const GenerationStep& s) {
  check_names(s.decoder, "decoder", 0, {"input_ids"});
  check_integers(s.decoder, "decoder", 0);
  if (has_mask(s)) {
    const size_t at = mask_place(s);
    check_names(s.decoder, "decoder", at, {"encoder_attention_mask"});
    for (size_t i = 1; i <= at; ++i) check_integers(s.decoder, "decoder", i);
  }
  const size_t past = first_past(s), self = num_self(s);
  TBX_MODEL(
      self > 0 && self % 2 == 0 && num_inputs(s.decoder) == past + 2 * self,
      "the decoder has {} inputs and {} outputs, expected logits and two presents, and four pasts, per layer",
      num_inputs(s.decoder), self + 1);
  check_floats(s.decoder, "decoder", 0, 3);
  for (size_t i = 1; i <= self; ++i) check_floats(s.decoder, "decoder", i, 4);
  check_encoder(s);
  TBX_MODEL(s.what.family == Family::whisper || s.what.start >= 0,
            "attribute 'decoder_start_token_id' is missing");
  if (encoder_starts(s)) return;
  for (size_t i = past; i < past + self; ++i) {
    const ValueEntry& e = s.decoder.plan->inputs[i];
    TBX_MODEL(e.ranked && e.element.dims.size() == 4 && e.element.dims[1] > 0 && e.element.dims[3] > 0,
              "input {} of the decoder, '{}', has the shape [{}], expected [batch, heads, length, head size] "
              "with known "
              "numbers of heads and sizes",
              i, e.name, fmt::join(e.dims, ", "));
  }
}

} // namespace tbx::runtime
