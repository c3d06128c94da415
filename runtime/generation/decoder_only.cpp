// Models like GPT-2. Decoder: input_ids, position_ids, attention_mask [rows, length], past_i [2, rows, heads,
// past length, head size] -> logits [rows, length, vocabulary], present_i.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/generation/body.h"
#include "runtime/generation/language_model.h"

namespace tbx::runtime {
namespace {

constexpr size_t kFirstPast = 3;

class DecoderOnly final : public LanguageModel {
public:
  explicit DecoderOnly(const ModelContext& c) : c_(c), decoder_(c.step.decoder, false, c.frame, c.number) {}

  Tensor prompt() override { return *c_.s.input; }

  /// Once per batch element: its beams are the same yet.
  Tensor start() override {
    const int64_t batch = c_.s.batch, length = c_.s.prompt;
    Tensor positions = integers({batch, length});
    mask_ = integers({batch, length});
    for (int64_t b = 0; b < batch; ++b) {
      int32_t position = 0;
      for (int64_t i = b * length; i < (b + 1) * length; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool padding = c_.s.input->as<int32_t>()[at] == c_.step.what.pad;
        mask_.as_mutable<int32_t>()[at] =
            c_.s.attention_mask ? c_.s.attention_mask->as<int32_t>()[at] : static_cast<int32_t>(!padding);
        positions.as_mutable<int32_t>()[at] = padding ? 0 : position++;
      }
      lengths_.push_back(position);
    }
    std::vector<Tensor> inputs{*c_.s.input, std::move(positions), mask_};
    const ValuePlan& plan = *c_.step.decoder.plan;
    for (size_t i = kFirstPast; i < num_inputs(c_.step.decoder); ++i) {
      std::vector<int64_t> dims = plan.inputs[i].element.dims;
      dims[1] = batch;
      dims[3] = 0;
      inputs.push_back(Tensor::make(plan.inputs[i].dtype, std::move(dims)));
    }
    if (!c_.step.first.plan) return run(decoder_, inputs);
    Body first(c_.step.first, true, c_.frame, c_.number);
    return run(first, inputs);
  }

  Tensor next(std::span<const int32_t> tokens, std::span<const int32_t> parents, const Sequences&) override {
    const int64_t rows = c_.s.rows();
    Tensor ids = integers({rows, 1}), positions = integers({rows, 1});
    std::copy(tokens.begin(), tokens.end(), ids.as_mutable<int32_t>().begin());
    for (int64_t i = 0; i < rows; ++i)
      positions.as_mutable<int32_t>()[static_cast<size_t>(i)] =
          lengths_[static_cast<size_t>(i / c_.s.beams)] + steps_;
    mask_ = longer_mask();
    std::vector<Tensor> inputs{std::move(ids), std::move(positions), mask_};
    std::vector<int32_t> from(parents.begin(), parents.end());
    if (steps_ == 0) // what is remembered is still that of the batch elements
      for (int32_t& p : from) p /= static_cast<int32_t>(c_.s.beams);
    const int64_t known = steps_ == 0 ? c_.s.batch : rows;
    for (size_t i = 0; i < present_.size(); ++i)
      inputs.push_back(take_rows(present_[i], 1, from, known, fmt::format("present_{}", i)));
    present_.clear();
    ++steps_;
    return run(decoder_, inputs);
  }

private:
  Tensor run(Body& body, const std::vector<Tensor>& inputs) {
    std::vector<Tensor> outputs = body.run(inputs, c_.guard);
    Tensor logits = std::move(outputs[0]);
    outputs.erase(outputs.begin());
    present_ = std::move(outputs);
    return logits;
  }

  /// One more token to look at. The masks of the beams of a batch element are the same.
  Tensor longer_mask() const {
    const int64_t old = mask_.dims[1], rows = c_.s.rows(), per = rows / std::max<int64_t>(1, mask_.dims[0]);
    Tensor mask = integers({rows, old + 1});
    auto to = mask.as_mutable<int32_t>().begin();
    for (int64_t i = 0; i < rows; ++i) {
      auto from = mask_.as<int32_t>().begin() + i / per * old;
      to = std::copy(from, from + old, to);
      *to++ = 1;
    }
    return mask;
  }

  ModelContext c_;
  Body decoder_;
  std::vector<int32_t> lengths_; ///< per batch element: tokens of the prompt that are no padding
  Tensor mask_;
  std::vector<Tensor> present_;
  int32_t steps_ = 0;
};

void check_decoder(const BodyCall& decoder, const char* what) {
  check_names(decoder, what, 0, {"input_ids", "position_ids", "attention_mask"});
  const size_t inputs = num_inputs(decoder), outputs = decoder.plan->outputs.size();
  TBX_MODEL(outputs > 1 && inputs == outputs + 2,
            "the {} has {} inputs and {} outputs, expected one past and one present per layer", what, inputs,
            outputs);
  for (size_t i = 0; i < kFirstPast; ++i) check_integers(decoder, what, i);
  for (size_t i = kFirstPast; i < inputs; ++i) {
    const ValueEntry& past = decoder.plan->inputs[i];
    check_names(decoder, what, i, {fmt::format("past_{}", i - kFirstPast)});
    const auto& dims = past.element.dims;
    TBX_MODEL(past.ranked && dims.size() == 5 && dims[0] == 2 && dims[2] > 0 && dims[4] > 0,
              "input {} of the {}, '{}', has the shape [{}], expected [2, batch, heads, length, head size] "
              "with known "
              "numbers of heads and sizes",
              i, what, past.name, fmt::join(past.dims, ", "));
    TBX_MODEL(past.dtype == DType::f32 || past.dtype == DType::f16 || past.dtype == DType::bf16,
              "input {} of the {}, '{}', is of type {}, expected floats", i, what, past.name,
              name_of(past.dtype));
  }
  check_floats(decoder, what, 0, 3);
  for (size_t i = 1; i < outputs; ++i) check_floats(decoder, what, i, 5);
}

} // namespace

std::unique_ptr<LanguageModel> make_decoder_only(const ModelContext& c) {
  return std::make_unique<DecoderOnly>(c);
}

void check_decoder_only(const GenerationStep& s) {
  check_decoder(s.decoder, "decoder");
  if (!s.first.plan) return;
  check_decoder(s.first, "first decoder");
  TBX_MODEL(s.first.plan->inputs.size() - s.first.captures.size() == num_inputs(s.decoder),
            "attributes 'init_decoder' and 'decoder' have {} and {} inputs", num_inputs(s.first),
            num_inputs(s.decoder));
}

} // namespace tbx::runtime
