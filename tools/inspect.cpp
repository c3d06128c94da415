// tbx dump, explain, ops: what the compiler made of a model and what it can do.
#include <fmt/format.h>

#include <fstream>

#include "tools/common.h"

namespace tbx::tools {
namespace {

struct DumpOptions {
  ModelOptions model;
  std::string stage = "schedule";
};

struct ExplainOptions {
  ModelOptions model;
  bool profile = false, passes = false;
  std::string trace;
};

Json to_json(const KernelReport& k) {
  return {{"name", k.name},           {"kind", k.kind},         {"nodes", k.nodes},
          {"decisions", k.decisions}, {"bytes", k.bytes},       {"flops", k.flops},
          {"time_ns", k.time_ns},     {"start_ns", k.start_ns}, {"threads", k.threads}};
}

/// Chrome / Perfetto trace events, times in microseconds.
void write_trace(const std::string& path, const std::vector<KernelReport>& kernels) {
  Json events = Json::array();
  for (const KernelReport& k : kernels)
    events.push_back({{"name", k.nodes.empty() ? k.name : k.nodes.front()},
                      {"cat", k.kind},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", static_cast<double>(k.start_ns) / 1000},
                      {"dur", static_cast<double>(k.time_ns) / 1000},
                      {"args", {{"kernel", k.name}, {"nodes", k.nodes}, {"bytes", k.bytes}}}});
  std::ofstream out(path);
  out << Json{{"traceEvents", events}}.dump(1);
  if (!out.flush()) throw std::runtime_error(path + ": cannot be written");
}

void explain(ExplainOptions& o) {
  if (o.passes) {
    for (const std::string& name : pass_names()) fmt::print("{}\n", name);
    return;
  }
  Session session = o.model.open();
  std::vector<KernelReport> kernels;
  if (o.profile || !o.trace.empty()) {
    std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
    session.run(views(inputs)).value();
    kernels = session.profile(views(inputs)).value();
    if (!o.trace.empty()) write_trace(o.trace, kernels);
  } else {
    kernels = session.explain();
  }
  CompileStats stats = session.stats();
  if (o.model.json) {
    Json report{{"model", o.model.model},
                {"nodes", stats.nodes},
                {"compile_ms", stats.total_ms},
                {"kernels", Json::array()}};
    for (const KernelReport& k : kernels) report["kernels"].push_back(to_json(k));
    fmt::print("{}\n", report.dump(2));
    return;
  }
  fmt::print("{} nodes -> {} generated and {} library kernels\n", stats.nodes, stats.generated_kernels,
             stats.extern_kernels);
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelReport& k = kernels[i];
    fmt::print("\n{:3} {} {}\n", i, k.kind, k.name);
    fmt::print("    nodes: {}\n", fmt::join(k.nodes, ", "));
    for (const std::string& d : k.decisions) fmt::print("    {}\n", d);
    fmt::print("    {:.3f} MB, {:.3f} MFLOP", static_cast<double>(k.bytes) / 1e6, k.flops / 1e6);
    if (k.time_ns > 0)
      fmt::print(", {:.1f} us, {:.1f} GB/s, {:.1f} GFLOP/s, {} thread(s)",
                 static_cast<double>(k.time_ns) / 1e3,
                 static_cast<double>(k.bytes) / static_cast<double>(k.time_ns),
                 k.flops / static_cast<double>(k.time_ns), k.threads);
    fmt::print("\n");
  }
}

} // namespace

void add_dump(CLI::App& app, int&) {
  auto o = std::make_shared<DumpOptions>();
  CLI::App* cmd = app.add_subcommand("dump", "print the model at a stage of the compiler");
  o->model.add_to(*cmd, false);
  cmd->add_option("--stage", o->stage, "import, simplify, lower, schedule, source, cuda or plan")
      ->check(CLI::IsMember({"import", "simplify", "lower", "schedule", "source", "cuda", "plan"}));
  set_examples(*cmd, "  tbx dump model.onnx --stage import      the graph as imported\n"
                     "  tbx dump model.onnx --stage source      the C++ of the generated kernels\n"
                     "  tbx dump model.onnx --stage cuda        the same kernels as CUDA C++");
  cmd->callback([o] {
    std::string text = o->model.open().dump(o->stage).value();
    if (o->model.json)
      fmt::print("{}\n", Json{{"stage", o->stage}, {"text", text}}.dump(2));
    else
      fmt::print("{}", text);
  });
}

void add_explain(CLI::App& app, int&) {
  auto o = std::make_shared<ExplainOptions>();
  CLI::App* cmd =
      app.add_subcommand("explain", "per kernel: its nodes, why it was (not) fused, bytes, flops, time");
  o->model.add_to(*cmd);
  cmd->get_option("model")->required(false);
  cmd->add_flag("--profile", o->profile, "run the model and show times");
  cmd->add_option("--trace", o->trace, "write a Chrome / Perfetto trace of one run");
  cmd->add_flag("--passes", o->passes, "list the graph passes and stop");
  set_examples(*cmd, "  tbx explain model.onnx                       what was fused, what not, and why\n"
                     "  tbx explain model.onnx --profile             with the time of each kernel\n"
                     "  tbx explain model.onnx --trace trace.json    for chrome://tracing or Perfetto\n"
                     "  tbx explain --passes                         names for --disable-pass");
  cmd->callback([o] {
    if (o->model.model.empty() && !o->passes) throw CLI::RequiredError("model");
    explain(*o);
  });
}

void add_ops(CLI::App& app, int&) {
  auto json = std::make_shared<bool>(false);
  CLI::App* cmd = app.add_subcommand("ops", "list the supported operators and their opsets");
  cmd->add_flag("--json", *json, "machine-readable output");
  set_examples(*cmd, "  tbx ops\n  tbx ops --json");
  cmd->callback([json] {
    Json all = Json::array();
    for (const OperatorInfo& op : operators())
      all.push_back({{"domain", op.domain.empty() ? "ai.onnx" : op.domain},
                     {"name", op.name},
                     {"since", op.since},
                     {"how", op.how}});
    if (*json) {
      fmt::print("{}\n", all.dump(2));
      return;
    }
    for (const Json& op : all)
      fmt::print("{:28} {:32} {:8} since {}\n", op["domain"].get<std::string>(),
                 op["name"].get<std::string>(), op["how"].get<std::string>(),
                 fmt::join(op["since"].get<std::vector<int>>(), ", "));
    fmt::print("{} operators\n", all.size());
  });
}

} // namespace tbx::tools
