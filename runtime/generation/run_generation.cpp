#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/float_formats.h"
#include "runtime/generation/language_model.h"
#include "runtime/generation/token_search.h"
#include "runtime/value_frame.h"

namespace tbx::runtime {
namespace {

/// The logits of the next tokens, [rows, vocabulary]: those of a batch element for each of its beams.
std::vector<float> last_logits(const Tensor& t, const Settings& s, int64_t vocabulary) {
  const int64_t length = t.dims[1], width = t.dims[2], per = t.dims[0] == s.rows() ? 1 : s.beams;
  std::vector<float> out(static_cast<size_t>(s.rows() * vocabulary));
  for (int64_t i = 0; i < s.rows(); ++i) {
    float* to = out.data() + i * vocabulary;
    const std::byte* from = t.data + ((i / per + 1) * length - 1) * width * size_of(t.dtype);
    if (t.dtype == DType::f32)
      std::copy_n(reinterpret_cast<const float*>(from), vocabulary, to);
    else
      decode_halves(t.dtype, reinterpret_cast<const uint16_t*>(from), vocabulary, to);
  }
  return out;
}

void check_logits(const Tensor& t, const Settings& s, int64_t width) {
  TBX_MODEL(t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16,
            "the logits are of type {}, expected floats", name_of(t.dtype));
  TBX_MODEL(t.dims.size() == 3 && (t.dims[0] == s.rows() || t.dims[0] == s.batch) && t.dims[1] > 0 &&
                t.dims[2] > 0 && (width < 0 || t.dims[2] == width),
            "the logits have the shape [{}], expected a batch of {}, at least one token, and {} logits",
            fmt::join(t.dims, ", "), s.rows(), width < 0 ? "some" : std::to_string(width));
}

int64_t vocabulary_of(const Generation& g, int64_t width) {
  TBX_MODEL(g.vocabulary <= width, "attribute 'vocab_size' is {}, there are {} logits", g.vocabulary, width);
  return g.vocabulary > 0 ? g.vocabulary : width;
}

bool wants(const ValueStep& step, size_t i) { return i < step.outputs.size() && step.outputs[i] >= 0; }

/// The probability of the token that says that nobody speaks, [batch].
Tensor silence(const Generation& g, const Settings& s, std::span<const float> logits, int64_t vocabulary) {
  TBX_MODEL(g.no_speech >= 0 && g.no_speech < vocabulary,
            "attribute 'no_speech_token_id' is {}, which is no token of the vocabulary of {}", g.no_speech,
            vocabulary);
  Tensor out = Tensor::make(DType::f32, {s.batch});
  for (int64_t b = 0; b < s.batch; ++b) {
    auto row = logits.subspan(static_cast<size_t>(b * s.beams * vocabulary), static_cast<size_t>(vocabulary));
    const float most = *std::max_element(row.begin(), row.end());
    float sum = 0;
    for (float x : row) sum += std::exp(x - most);
    out.as_mutable<float>()[static_cast<size_t>(b)] =
        std::exp(row[static_cast<size_t>(g.no_speech)] - most) / sum;
  }
  return out;
}

/// What is kept during the run, besides what the bodies make.
void check_memory(const Settings& s, int64_t vocabulary, bool wants_scores, const RunGuard& guard) {
  const auto rows = static_cast<double>(s.rows());
  double bytes = rows * (12.0 * static_cast<double>(s.max_length) + 4.0 * static_cast<double>(vocabulary));
  if (wants_scores)
    bytes += 4.0 * static_cast<double>(s.max_length - s.prompt) * rows * static_cast<double>(vocabulary);
  guard.check_gathered(bytes < 9e18 ? static_cast<int64_t>(bytes) : INT64_MAX);
}

} // namespace

void check_bodies(const GenerationStep& step) {
  if (step.what.family == Family::gpt)
    check_decoder_only(step);
  else
    check_encoder_decoder(step);
}

void run_generation(const GenerationStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
                    const RunGuard& guard) {
  const Generation& g = s.what;
  const Settings settings = read_settings(g, step, frame);
  check_memory(settings, 0, false, guard);
  const ModelContext model_context{s, settings, frame, number, guard};
  auto model =
      g.family == Family::gpt ? make_decoder_only(model_context) : make_encoder_decoder(model_context);
  Sequences sequences(settings.rows(), settings.max_length);
  const Tensor prompt = model->prompt();
  sequences.start(prompt.as<int32_t>(), settings.prompt, settings.beams);

  Tensor logits = model->start();
  check_logits(logits, settings, -1);
  const int64_t width = logits.dims[2], vocabulary = vocabulary_of(g, width);
  const bool beams = g.search == Search::beams;
  const ScoreRules rules(g, settings, vocabulary);
  const SearchContext context{
      g, settings, rules, sequences, vocabulary, beams && wants(step, 2), !beams && wants(step, 1)};
  check_memory(settings, vocabulary, context.wants_scores, guard);
  auto search = beams                          ? make_beam_search(context)
                : g.search == Search::sampling ? make_sampling(context)
                                               : make_greedy_search(context);
  Tensor no_speech;
  for (;;) {
    std::vector<float> scores = last_logits(logits, settings, vocabulary);
    if (beams && wants(step, 4) && sequences.length() == settings.prompt)
      no_speech = silence(g, settings, scores, vocabulary);
    search->advance(scores);
    if (search->is_done() || sequences.length() == settings.max_length) break;
    logits = model->next(search->tokens, search->parents, sequences);
    check_logits(logits, settings, width);
  }

  Generated made = search->finish();
  auto give = [&](size_t i, Tensor t) {
    if (wants(step, i)) frame.slots[step.outputs[i]] = RuntimeValue(std::move(t));
  };
  give(0, std::move(made.sequences));
  give(1, std::move(beams ? made.sequence_scores : made.filtered));
  give(2, std::move(made.scores));
  give(4, std::move(no_speech));
}

} // namespace tbx::runtime
