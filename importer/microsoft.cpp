#include "importer/microsoft.h"

#include "importer/attn_lstm.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

namespace tbx::importer {
namespace {

using onnx::OpSchema;

/// Strings [...] -> tokens [..., T].
void infer_tokenizer(onnx::InferenceContext& ctx) {
  onnx::propagateElemTypeFromInputToOutput(ctx, 0, 0);
  if (!onnx::hasInputShape(ctx, 0)) return;
  auto* shape = ctx.getOutputType(0)->mutable_tensor_type()->mutable_shape();
  *shape = ctx.getInputType(0)->tensor_type().shape();
  shape->add_dim();
}

OpSchema operator_of(const char* name) {
  OpSchema schema(name, __FILE__, __LINE__);
  schema.SetDomain("com.microsoft").SinceVersion(1).AllowUncheckedAttributes(); // the operator checks them
  return schema;
}

OpSchema make_tokenizer() {
  OpSchema schema = operator_of("Tokenizer");
  schema.Input(0, "X", "", "T")
      .Output(0, "Y", "", "T")
      .TypeConstraint("T", {"tensor(string)"}, "")
      .TypeAndShapeInferenceFunction(infer_tokenizer);
  schema.Finalize();
  return schema;
}

struct Output {
  const char* name;
  int32_t type;
  int rank;
  int batch; ///< the dimension that is the first of input 0; -1: none
};

/// An operator that generates text. Inputs: 0 of type F, those of `floats` of type T, the others integers.
OpSchema make_generation(const char* name, const std::vector<const char*>& inputs, int required,
                         const std::vector<int>& floats, const std::vector<Output>& outputs) {
  OpSchema schema = operator_of(name);
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const bool is_float = std::find(floats.begin(), floats.end(), i) != floats.end();
    const bool optional = i >= required || std::string_view(inputs[i]) == "min_length";
    schema.Input(i, inputs[i], "",
                 i == 0     ? "F"
                 : is_float ? "T"
                            : "I",
                 optional ? OpSchema::Optional : OpSchema::Single);
  }
  for (int i = 0; i < static_cast<int>(outputs.size()); ++i)
    schema.Output(i, outputs[i].name, "", outputs[i].type == onnx::TensorProto::INT32 ? "I" : "T",
                  i == 0 ? OpSchema::Single : OpSchema::Optional);
  schema.TypeConstraint("F", {"tensor(int32)", "tensor(float)", "tensor(float16)"}, "")
      .TypeConstraint("T", {"tensor(float)"}, "")
      .TypeConstraint("I", {"tensor(int32)"}, "")
      .TypeAndShapeInferenceFunction([outputs](onnx::InferenceContext& ctx) {
        for (size_t i = 0; i < ctx.getNumOutputs() && i < outputs.size(); ++i) {
          onnx::updateOutputElemType(ctx, i, outputs[i].type);
          auto* shape = ctx.getOutputType(i)->mutable_tensor_type()->mutable_shape();
          for (int d = 0; d < outputs[i].rank; ++d) {
            auto* dim = shape->add_dim();
            if (d == outputs[i].batch && onnx::hasInputShape(ctx, 0) &&
                onnx::getInputShape(ctx, 0).dim_size() > 0)
              *dim = onnx::getInputShape(ctx, 0).dim(0);
          }
        }
      });
  schema.Finalize();
  return schema;
}

std::map<std::string, OpSchema> make_schemas() {
  constexpr int32_t kInt = onnx::TensorProto::INT32, kFloat = onnx::TensorProto::FLOAT;
  const Output sequences{"sequences", kInt, 2, 0}, beams{"sequences", kInt, 3, 0},
      beam_scores{"sequences_scores", kFloat, 2, 0}, scores{"scores", kFloat, 4, 1};
  std::vector<const char*> single{"input_ids",  "max_length",        "min_length",    "repetition_penalty",
                                  "vocab_mask", "prefix_vocab_mask", "attention_mask"};
  std::vector<const char*> sampling = single;
  sampling.insert(sampling.end(), {"presence_mask", "seed"});
  std::vector<const char*> beam{"input_ids",          "max_length",           "min_length",
                                "num_beams",          "num_return_sequences", "length_penalty",
                                "repetition_penalty", "vocab_mask",           "prefix_vocab_mask",
                                "attention_mask",     "decoder_input_ids",    "logits_processor"};
  std::vector<const char*> whisper = beam;
  whisper.insert(whisper.end(), {"cross_qk_layer_head", "extra_decoding_ids", "temperature"});
  std::map<std::string, OpSchema> all;
  all.emplace("AttnLSTM", make_attn_lstm());
  all.emplace("Tokenizer", make_tokenizer());
  all.emplace("GreedySearch", make_generation("GreedySearch", single, 2, {3}, {sequences}));
  all.emplace("Sampling",
              make_generation("Sampling", sampling, 2, {3}, {sequences, {"filtered_logits", kFloat, 2, 0}}));
  all.emplace("BeamSearch", make_generation("BeamSearch", beam, 5, {5, 6}, {beams, beam_scores, scores}));
  all.emplace(
      "WhisperBeamSearch",
      make_generation(
          "WhisperBeamSearch", whisper, 5, {5, 6, 14},
          {beams, beam_scores, scores, {"cross_qk", kFloat, 5, 0}, {"non_speech_probs", kFloat, 1, 0}}));
  return all;
}

} // namespace

const std::map<std::string, OpSchema>& microsoft_schemas() {
  static const std::map<std::string, OpSchema> schemas = make_schemas();
  return schemas;
}

const onnx::OpSchema* find_microsoft_schema(const std::string& domain, const std::string& op) {
  if (domain != "com.microsoft") return nullptr;
  auto it = microsoft_schemas().find(op);
  return it == microsoft_schemas().end() ? nullptr : &it->second;
}

} // namespace tbx::importer
