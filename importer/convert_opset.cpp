#include "importer/convert_opset.h"

#include <onnx/defs/schema.h>
#include <onnx/version_converter/convert.h>

#include <span>

#include "base/error.h"
#include "importer/proto_file.h"

namespace tbx {

std::string convert_opset(const std::string& bytes, int opset) {
  auto [lowest, highest] = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("");
  TBX_MODEL(opset >= lowest && opset <= highest, "there is no opset {} of ai.onnx: expected {} to {}", opset,
            lowest, highest);
  onnx::ModelProto model = importer::parse_model(std::as_bytes(std::span(bytes)), {});
  try {
    return onnx::version_conversion::ConvertVersion(model, opset).SerializeAsString();
  } catch (const std::exception& e) {
    // "<file>:66: adapter_lookup: Assertion `false` failed: No Adapter From Version $14 for Add"
    std::string why = e.what();
    if (size_t at = why.rfind(" failed: "); at != std::string::npos) why.erase(0, at + 9);
    throw Error(ErrorKind::unsupported,
                fmt::format("the model cannot be converted to opset {}: {}", opset, why),
                "optimize it under its own opset");
  }
}

} // namespace tbx
