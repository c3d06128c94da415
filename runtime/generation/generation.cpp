#include "runtime/generation/generation.h"

#include <algorithm>

namespace tbx::runtime {
namespace {

constexpr int64_t kMaxToken = INT32_MAX;

int32_t token(const ValueNode& node, const char* name, int64_t otherwise) {
  int64_t t = node.integer(name, otherwise);
  TBX_MODEL(t >= -1 && t <= kMaxToken, "attribute '{}' is {}, which is no token", name, t);
  return static_cast<int32_t>(t);
}

int32_t required_token(const ValueNode& node, const char* name) {
  TBX_MODEL(node.has(name), "attribute '{}' is missing", name);
  int32_t t = token(node, name, -1);
  TBX_MODEL(t >= 0, "attribute '{}' is {}, which is no token", name, t);
  return t;
}

Family family_of(const ValueNode& node, const GenerationOp& op) {
  int64_t type = node.integer("model_type", op.whisper ? 2 : 0);
  TBX_MODEL(type >= 0 && type <= 2,
            "attribute 'model_type' is {}, expected 0 (a decoder only), 1 (encoder and "
            "decoder) or 2 (Whisper)",
            type);
  // Older tools write BeamSearch for Whisper.
  TBX_MODEL(type == 2 ? op.search == Search::beams : !op.whisper,
            "attribute 'model_type' is {}, which {} does not have", type, op.name);
  if (type == 1 && op.search != Search::beams)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("attribute 'model_type' is 1: {} has no form with an encoder, in ONNX Runtime either",
                    op.name),
        "BeamSearch with one beam takes the same tokens");
  return type == 0 ? Family::gpt : type == 1 ? Family::t5 : Family::whisper;
}

} // namespace

const GenerationOp* find_generation_op(std::string_view domain, std::string_view op) {
  if (domain != "com.microsoft") return nullptr;
  const auto* found = std::find_if(std::begin(kGenerationOps), std::end(kGenerationOps),
                                   [&](const GenerationOp& o) { return o.name == op; });
  return found == std::end(kGenerationOps) ? nullptr : found;
}

Generation read_generation(const ValueNode& node) {
  const GenerationOp* op = find_generation_op(node.domain, node.op);
  TBX_INTERNAL(op != nullptr);
  Generation g;
  g.search = op->search;
  g.family = family_of(node, *op);
  g.end = required_token(node, "eos_token_id");
  g.pad = required_token(node, "pad_token_id");
  g.start = token(node, "decoder_start_token_id", -1);
  g.vocabulary = std::max<int64_t>(0, node.integer("vocab_size", 0));
  g.ngram = node.integer("no_repeat_ngram_size", 0);
  TBX_MODEL(g.ngram >= 0, "attribute 'no_repeat_ngram_size' is {}", g.ngram);
  g.early_stopping = node.integer("early_stopping", 0) == 1;
  if (g.search == Search::sampling) {
    g.temperature = static_cast<float>(node.real("temperature", 1));
    g.presence_penalty = static_cast<float>(node.real("presence_penalty", 0));
    g.top_p = static_cast<float>(node.real("top_p", 0));
    g.filtered = static_cast<float>(node.real("filter_value", -1e20));
    g.least_kept = node.integer("min_tokens_to_keep", 0);
    TBX_MODEL(g.least_kept >= 0, "attribute 'min_tokens_to_keep' is {}", g.least_kept);
    g.from_the_top = node.integer("custom", 0) == 1;
  }
  if (g.family == Family::whisper) {
    g.no_speech = token(node, "no_speech_token_id", -1);
    g.translate = token(node, "translate_token_id", -1);
    g.transcribe = token(node, "transcribe_token_id", -1);
    g.language_model = token(node, "start_of_lm_token_id", -1);
    g.no_timestamps = token(node, "no_timestamps_token_id", -1);
    g.first_timestamp = token(node, "beginning_timestamp_token_id", -1);
    const bool attention = node.integer("decoder_output_cross_qk", 0) != 0;
    if (attention || (node.wanted.size() > 3 && node.wanted[3]))
      throw_unsupported(
          "the attention of the decoder to the encoder (output 'cross_qk'), which ONNX Runtime gives "
          "on GPUs only");
  }
  return g;
}

} // namespace tbx::runtime
