#include "importer/convert_opset.h"

#include <onnx/defs/schema.h>
#include <onnx/version_converter/convert.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "graph/node_attributes.h"
#include "importer/export.h"
#include "importer/proto_file.h"

namespace tbx {
namespace {

/// A version that computes something else from the same node, which ONNX's converter leaves as it is.
struct Change {
  const char* op;
  int version;
  bool up, down; ///< the ways on which it does
};
constexpr Change kChanges[] = {{"Softmax", 13, false, true},
                               {"LogSoftmax", 13, false, true},
                               {"Hardmax", 13, true, true},
                               {"Scan", 9, true, true}}; // until then with a batch and lengths

/// Of an operator that goes over all dimensions from `axis` on before version 13, and over that one since
/// then, which is the same for the last.
bool is_of_last_axis(const Graph& graph, const Node& node) {
  const auto& shape = graph.at(node.inputs[0]).type.shape;
  const auto axis = attribute_or<int64_t>(node, "axis", node.opset < 13 ? 1 : -1);
  return axis == -1 || (shape && axis + 1 == static_cast<int64_t>(shape->size()));
}

void refuse_changes(const Graph& graph, int to) {
  for (const Node& node : graph.nodes) {
    for_each_body(node, [&](const Graph& body) { refuse_changes(body, to); });
    const auto* change = std::find_if(std::begin(kChanges), std::end(kChanges),
                                      [&](const Change& c) { return node.op_type == c.op; });
    if (!node.domain.empty() || change == std::end(kChanges)) continue;
    const bool up = node.opset < change->version && to >= change->version,
               down = node.opset >= change->version && to < change->version;
    if (!(up && change->up) && !(down && change->down)) continue;
    if (node.op_type != "Scan" && is_of_last_axis(graph, node)) continue;
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: the model cannot be converted to opset {}: since version {} {} computes "
                            "something else",
                            describe(graph, node), to, change->version, node.op_type),
                "optimize it under its own opset");
  }
}

} // namespace

std::string convert_opset(const Graph& graph, int opset) {
  auto [lowest, highest] = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("");
  TBX_MODEL(opset >= lowest && opset <= highest, "there is no opset {} of ai.onnx: expected {} to {}", opset,
            lowest, highest);
  refuse_changes(graph, opset);
  const std::string bytes = export_bytes(graph);
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
