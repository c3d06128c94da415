// The public API (include/tensorbox/tensorbox.h) but for sessions: what the compiler knows and does.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/shown.h"
#include "device/device.h"
#include "driver/optimize.h"
#include "driver/passes.h"
#include "graph/function_body.h"
#include "lowering/op_registry.h"
#include "package/guarded.h"
#include "runtime/generation/generation.h"
#include "runtime/value_op.h"
#include "tensorbox/tensorbox.h"

namespace tbx {

Result<OptimizeReport> optimize(const std::string& onnx_file, const std::string& to,
                                const OptimizeOptions& options) {
  return package::guarded([&] {
    if (is_package(onnx_file))
      throw Error(ErrorKind::model,
                  fmt::format("file {} is a package, which is compiled already", shown(onnx_file)),
                  "give the ONNX model that it was made of");
    return driver::optimize(onnx_file, to, options);
  });
}

std::string device_problem(const std::string& device) {
  if (device.empty() || device == "cpu") return {};
  const auto opened = package::guarded([&] { return device::open(device); });
  return opened ? std::string() : opened.error().message;
}

std::vector<std::string> pass_names() { return driver::names_of_passes(); }

std::vector<OperatorInfo> operators() {
  std::map<std::pair<std::string, std::string>, OperatorInfo> found;
  auto add = [&](std::string_view domain, std::string_view name, int since, const char* how) {
    if (domain == "tensorbox") return; // what the compiler itself puts into graphs
    OperatorInfo& o = found[{std::string(domain), std::string(name)}];
    if (o.name.empty()) o = {std::string(domain), std::string(name), {}, how};
    if (o.how == how) o.since.push_back(since);
  };
  for (const lowering::OpEntry* e : lowering::Registry::instance().all())
    add(e->domain, e->name, e->since, "compiled");
  for (const runtime::ValueOpInfo& o : runtime::value_ops()) add(o.domain, o.op, o.since, "values");
  for (const runtime::GenerationOp& o : runtime::kGenerationOps) add("com.microsoft", o.name, 1, "values");
  for (const auto& [domain, name, since] : operators_with_body()) add(domain, name, since, "body");
  add("ai.onnx.preview.training", "Gradient", 1, "compiled"); // as nodes: graph/differentiate/gradient.h
  std::vector<OperatorInfo> result;
  for (auto& [key, info] : found) {
    std::sort(info.since.begin(), info.since.end());
    result.push_back(std::move(info));
  }
  return result;
}

} // namespace tbx
