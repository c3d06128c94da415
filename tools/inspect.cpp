// tbx dump, explain: what the compiler made of a model and what it can do.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "driver/compile.h"
#include "tools/common.h"
#include "tools/files.h"
#include "tools/picture.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

struct DumpOptions {
  ModelOptions model;
  std::string stage = "schedule", output;
};

struct ExplainOptions {
  ModelOptions model;
  bool profile = false, passes = false;
  std::string trace, picture;
};

Json to_json(const KernelReport& k) {
  return {
      {"name", k.name},           {"kind", k.kind},       {"device", k.device},        {"nodes", k.nodes},
      {"decisions", k.decisions}, {"bytes", k.bytes},     {"flops", k.flops},          {"time_ns", k.time_ns},
      {"start_ns", k.start_ns},   {"threads", k.threads}, {"reads_from", k.reads_from}};
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
  write_file(path, Json{{"traceEvents", events}}.dump(1, ' ', false, Json::error_handler_t::replace));
}

/// Without a run, and in packages, operations are counted with a guessed size for each symbolic dimension.
bool has_symbols(const Session& session) {
  for (const TensorInfo& info : session.inputs()) {
    if (info.any_rank) return true;
    for (const std::string& d : info.dims)
      if (d.empty() || d.find_first_not_of("0123456789") != std::string::npos) return true;
  }
  return false;
}

/// Throws UsageError where the file that an option names, if it does, cannot be written.
void check_file(const std::string& option, const std::string& path, const ModelOptions& model) {
  if (path.empty()) return;
  if (const std::string why = refuses_file(path, model.model); !why.empty())
    throw UsageError(option + " " + why);
}

/// Kernels in the order of execution; totals first.
void explain(ExplainOptions& o) {
  check_file("--trace", o.trace, o.model);
  check_file("--picture", o.picture, o.model);
  if (!o.picture.empty() && !o.picture.ends_with(".svg"))
    throw UsageError("--picture " + o.picture + ": expected a name ending in .svg, which browsers show");
  if (o.passes) {
    if (o.model.json) return print_json(pass_names());
    for (const std::string& name : pass_names()) say("{}\n", name);
    return;
  }
  Session session = o.model.open();
  std::vector<KernelReport> kernels;
  const bool runs = o.profile || !o.trace.empty();
  const bool symbolic = (!runs || is_package(o.model.model)) && has_symbols(session);
  if (runs) {
    std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
    if (auto result = session.run_values(values_of(inputs)); !result)
      find_sizes(session, o.model, inputs, result.error());
    kernels = session.profile(views(inputs)).value();
    if (!o.trace.empty()) write_trace(o.trace, kernels);
  } else {
    kernels = session.explain();
  }
  if (!o.picture.empty()) write_file(o.picture, picture_of(o.model.model, kernels));
  CompileStats stats = session.stats();
  if (o.model.json) {
    Json report{{"model", o.model.model},          {"nodes", stats.nodes},
                {"compile_ms", stats.total_ms},    {"kept_plan", stats.kept_plan},
                {"flops_are_estimates", symbolic}, {"made_for", session.made_for()},
                {"kernels", Json::array()}};
    for (const KernelReport& k : kernels) report["kernels"].push_back(to_json(k));
    return print_json(report);
  }
  say("{} nodes -> {} generated and {} library kernels\n", stats.nodes, stats.generated_kernels,
      stats.extern_kernels);
  if (stats.kept_plan) say("started with a kept plan\n");
  for (const std::string& line : session.made_for()) say("made for {}\n", name_text(line));
  if (!o.model.compile.device.empty()) {
    const int all = stats.generated_kernels + stats.extern_kernels;
    say("{} on {}, {} on the host, {} copies between them\n", stats.device_steps, o.model.compile.device,
        all - stats.device_steps, stats.copies);
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelReport& k = kernels[i];
    say("\n{:3} {} {}{}\n", i, k.kind, k.name,
        o.model.compile.device.empty() || k.kind == "copy" ? "" : " on " + k.device);
    say("    nodes: {}\n", name_text(fmt::format("{}", fmt::join(k.nodes, ", "))));
    for (const std::string& d : k.decisions) say("    {}\n", name_text(d));
    say("    {:.3f} MB, {:.3f} MFLOP{}", static_cast<double>(k.bytes) / 1e6, k.flops / 1e6,
        symbolic ? " (at guessed sizes)" : "");
    if (k.time_ns > 0) {
      say(", {:.1f} us, {:.1f} GB/s", static_cast<double>(k.time_ns) / 1e3,
          static_cast<double>(k.bytes) / static_cast<double>(k.time_ns));
      if (!symbolic) say(", {:.1f} GFLOP/s", k.flops / static_cast<double>(k.time_ns));
      say(", {} thread(s)", k.threads);
    }
    say("\n");
  }
}

} // namespace

void add_dump(CLI::App& app, int&) {
  auto o = std::make_shared<DumpOptions>();
  CLI::App* cmd = app.add_subcommand("dump", "print the model at a stage of the compiler");
  o->model.add_to(*cmd, false);
  o->model.model_option->description("ONNX file, or a package, which has the stage plan alone");
  cmd->add_option("--stage", o->stage, "import, simplify, lower, schedule (default), source, cuda or plan")
      ->check(CLI::IsMember({"import", "simplify", "lower", "schedule", "source", "cuda", "plan"}));
  cmd->add_option("--dim", o->model.dims, "fixes a symbolic dimension: batch=4; repeatable")
      ->allow_extra_args(false);
  cmd->add_option("--output", o->output, "write to this file instead of stdout (-)");
  cmd->footer(
      R"(Stages: import (the graph as read), simplify (after the graph passes), lower (loop nests), schedule (fused
kernels), source (generated C++), cuda (generated CUDA), plan (what is run). No kernel is compiled for a dump.
Examples:
  tbx dump model.onnx --stage import
  tbx dump model.onnx --stage simplify --disable-pass fuse_gelu
  tbx dump model.onnx --stage source --isa avx2 --output kernels.cpp)");
  cmd->callback([o] {
    if (o->output == "-") o->output.clear();
    check_file("--output", o->output, o->model);
    o->model.compile.dims = parse_dims(o->model.dims);
    std::string text = is_package(o->model.model) ? o->model.open().dump(o->stage).value()
                                                  : driver::dump_stage(std::filesystem::path(o->model.model),
                                                                       o->model.compile, o->stage);
    if (o->model.json)
      text =
          Json{{"stage", o->stage}, {"text", text}}.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
    if (o->output.empty())
      put(stdout, text);
    else
      write_file(o->output, text);
  });
}

void add_explain(CLI::App& app, int&) {
  auto o = std::make_shared<ExplainOptions>();
  CLI::App* cmd =
      app.add_subcommand("explain", "per kernel: its nodes, why it was (not) fused, bytes, flops, time");
  o->model.add_to(*cmd);
  o->model.model_option->required(false);
  cmd->add_flag("--profile", o->profile, "run the model and show times");
  cmd->add_option("--trace", o->trace, "write a Chrome / Perfetto trace of one run");
  cmd->add_option(
      "--picture", o->picture,
      "write an SVG of all kernels: what they compute and read, and their times (with --profile) or bytes");
  cmd->add_flag("--passes", o->passes,
                "list the graph passes and the steps of the schedule that --disable-pass takes, and stop");
  cmd->footer(R"(Examples:
  tbx explain model.onnx                          kernels with their nodes and the reasons
  tbx explain model.onnx --profile --dim seq=128  with the time of each in one run
  tbx explain model.onnx --profile --picture m.svg  the same to look at, in a browser
  tbx explain model.onnx --trace trace.json       for chrome://tracing or ui.perfetto.dev)");
  cmd->callback([o] {
    if (o->model.model.empty() && !o->passes)
      throw UsageError("explain: model is required (only --passes needs none)");
    explain(*o);
  });
}

} // namespace tbx::tools
