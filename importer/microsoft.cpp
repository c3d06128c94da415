#include "importer/microsoft.h"

namespace tbx::importer {
namespace {

/// Strings [...] -> tokens [..., T].
void infer_tokenizer(onnx::InferenceContext& ctx) {
  onnx::propagateElemTypeFromInputToOutput(ctx, 0, 0);
  if (!onnx::hasInputShape(ctx, 0)) return;
  auto* shape = ctx.getOutputType(0)->mutable_tensor_type()->mutable_shape();
  *shape = ctx.getInputType(0)->tensor_type().shape();
  shape->add_dim();
}

onnx::OpSchema make_tokenizer() {
  onnx::OpSchema schema("Tokenizer", __FILE__, __LINE__);
  schema.SetDomain("com.microsoft")
      .SinceVersion(1)
      .AllowUncheckedAttributes() // the operator checks them
      .Input(0, "X", "", "T")
      .Output(0, "Y", "", "T")
      .TypeConstraint("T", {"tensor(string)"}, "")
      .TypeAndShapeInferenceFunction(infer_tokenizer);
  schema.Finalize();
  return schema;
}

} // namespace

const onnx::OpSchema* find_microsoft_schema(const std::string& domain, const std::string& op) {
  static const onnx::OpSchema tokenizer = make_tokenizer();
  return domain == "com.microsoft" && op == "Tokenizer" ? &tokenizer : nullptr;
}

} // namespace tbx::importer
