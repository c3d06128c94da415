// tbx optimize: a simplified ONNX file for any runtime.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tools/common.h"
#include "tools/files.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

struct OptimizeArguments {
  std::string model, to;
  std::vector<std::string> dims;
  OptimizeOptions optimize;
  bool json = false;
};

/// Of the file and of <file>.data beside it.
int64_t bytes_of(const std::string& file) {
  int64_t bytes = 0;
  for (const std::string& name : {file, file + ".data"}) {
    std::error_code missing;
    auto size = std::filesystem::file_size(name, missing);
    if (!missing) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

/// Operators whose number changed.
void print_operators(const OptimizeReport& report) {
  std::set<std::string> names;
  for (const auto& [name, count] : report.operators_before) names.insert(name);
  for (const auto& [name, count] : report.operators_after) names.insert(name);
  auto count_in = [](const std::map<std::string, int>& counts, const std::string& name) {
    auto it = counts.find(name);
    return it == counts.end() ? 0 : it->second;
  };
  for (const std::string& name : names) {
    int before = count_in(report.operators_before, name), after = count_in(report.operators_after, name);
    if (before != after) say("  {:28} {:6} -> {}\n", name, before, after);
  }
}

void optimize_model(const OptimizeArguments& o) {
  OptimizeOptions options = o.optimize;
  options.dims = parse_dims(o.dims);
  if (std::string why = refuses_file(o.to); !why.empty()) throw UsageError(why);
  const OptimizeReport report = optimize(o.model, o.to, options).value();
  if (o.json)
    return print_json({{"model", o.model},
                       {"optimized", o.to},
                       {"opset", report.opset},
                       {"nodes_before", report.nodes_before},
                       {"nodes_after", report.nodes_after},
                       {"operators_before", report.operators_before},
                       {"operators_after", report.operators_after},
                       {"rewrites", report.rewrites},
                       {"left_out", report.left_out},
                       {"bytes", bytes_of(o.to)}});
  say("{}: {} nodes -> {} nodes, opset {}, {:.3f} MB\n", o.to, report.nodes_before, report.nodes_after,
      report.opset, static_cast<double>(bytes_of(o.to)) / 1e6);
  print_operators(report);
  bool any = std::any_of(report.rewrites.begin(), report.rewrites.end(),
                         [](const auto& r) { return r.second != 0; });
  say("rewrites:{}\n", any ? "" : " none");
  for (const auto& [pass, count] : report.rewrites)
    if (count != 0) say("  {:32} {}\n", pass, count);
  for (const std::string& reason : report.left_out) say("left out: {} (--opset)\n", reason);
}

} // namespace

void add_optimize(CLI::App& app, int&) {
  auto o = std::make_shared<OptimizeArguments>();
  CLI::App* cmd = app.add_subcommand("optimize", "write a simplified ONNX file that every runtime reads");
  cmd->add_option("model", o->model, "ONNX file")->required()->check(CLI::ExistingFile);
  cmd->add_option("optimized", o->to, "file to write; may be the model itself")->required();
  add_load_limits(*cmd, o->optimize.limits);
  cmd->add_flag("--json", o->json, "one JSON value on stdout; notes and errors stay on stderr");
  cmd->add_option("--dim", o->dims, "fixes a symbolic dimension: batch=4; repeatable")
      ->allow_extra_args(false);
  cmd->add_option(
         "--opset", o->optimize.opset,
         "convert to this version of ai.onnx first: newer ones have LayerNormalization (17), Gelu (20), "
         "RMSNormalization (23)")
      ->check(CLI::Range(1, 10000));
  cmd->add_option("--disable-pass", o->optimize.disabled_passes,
                  "graph pass to leave out (tbx explain --passes lists them)")
      ->allow_extra_args(false);
  cmd->footer(
      R"(Inputs, outputs and their names stay; constants above 512 MB go into a second file, <optimized>.data.
Examples:
  tbx optimize model.onnx small.onnx                  fold constants, BatchNormalization and scales, ...
  tbx optimize model.onnx small.onnx --dim batch=1    shape computations of a fixed size disappear too
  tbx optimize model.onnx small.onnx --opset 20       and LayerNormalization and Gelu are put together
  tbx compare model.onnx small.onnx                   that both compute the same)");
  cmd->callback([o] { optimize_model(*o); });
}

} // namespace tbx::tools
