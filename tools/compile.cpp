// tbx compile: a model as a package that loads without a compiler.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "tools/common.h"
#include "tools/files.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

struct PackOptions {
  ModelOptions model;
  std::string output, isas;
  bool for_inputs_seen = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size() && !text.empty();) {
    const size_t to = std::min(text.find(',', from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

void compile(PackOptions& o) {
  if (is_package(o.model.model)) throw UsageError("compile: " + o.model.model + " is a package already");
  if (std::string why = refuses_file(o.output, o.model.model); !why.empty())
    throw UsageError("--output " + why);
  for (const std::string& isa : split(o.isas))
    if (isa != "avx512" && isa != "avx2" && isa != "sse")
      throw UsageError(fmt::format("--isa {}: '{}' is none of avx512, avx2, sse", o.isas, isa));
  o.model.compile.dims = parse_dims(o.model.dims);
  std::vector<std::string> architectures; // "cuda:sm_90,sm_80": of GPUs that are not this machine's
  if (std::string& device = o.model.compile.device; device.starts_with("cuda:sm_")) {
    architectures = split(device.substr(5));
    device = "cuda";
  }
  Session session = o.model.open();
  o.model.dims.clear();          // they are no symbols any more
  if (!o.model.inputs.empty()) { // what is compiled for values or shapes is compiled for these
    std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
    session.run_values(values_of(inputs)).value();
  }
  const PackageReport report =
      session.save(o.output, {split(o.isas), architectures, o.for_inputs_seen}).value();
  if (o.model.json) {
    print_json({{"file", o.output},
                {"bytes", report.bytes},
                {"constant_bytes", report.constant_bytes},
                {"kernel_bytes", report.kernel_bytes},
                {"programs", report.programs},
                {"isas", report.isas},
                {"architectures", report.architectures}});
    return;
  }
  say("{}: {:.1f} MB, of them {:.1f} MB constants; {} program(s); native kernels: {}\n", o.output,
      static_cast<double>(report.bytes) / 1e6, static_cast<double>(report.constant_bytes) / 1e6,
      report.programs,
      report.isas.empty() ? "none, all run in the evaluator"
                          : fmt::format("{}", fmt::join(report.isas, ", ")));
  if (!report.architectures.empty())
    say("for GPUs: {}, others by NVRTC when it is loaded\n", fmt::join(report.architectures, ", "));
}

} // namespace

void add_compile(CLI::App& app, int&) {
  auto o = std::make_shared<PackOptions>();
  CLI::App* cmd = app.add_subcommand("compile", "write a package: one file that loads without a compiler");
  o->model.add_to(*cmd, false);
  o->model.model_option->description("ONNX file");
  cmd->remove_option(o->model.isa_option);
  cmd->remove_option(o->model.device_option);
  cmd->add_option(
      "--device", o->model.compile.device,
      "cuda or cuda:1: for the GPU of this machine; cuda:sm_90,sm_80: with machine code for these "
      "architectures (docs/packages.md); default: CPUs");
  cmd->add_option("-o,--output", o->output, "the package to write")->required();
  cmd->add_option(
      "--isa", o->isas,
      "native kernels for CPUs of these instruction sets: avx512,avx2,sse; default: what this CPU runs. "
      "Others run the package in the evaluator, which is in it, too");
  cmd->add_option("--dim", o->model.dims, "fixes a symbolic dimension: batch=4; repeatable")
      ->allow_extra_args(false);
  cmd->add_option(
         "--input", o->model.inputs,
         "run the model once before, with this input from a file (name=x.npy, as of `tbx run`) and random "
         "others; repeatable")
      ->allow_extra_args(false);
  cmd->add_flag(
      "--for-inputs-seen", o->for_inputs_seen,
      "where code depends on values or shapes that only a run brings: the package serves inputs like "
      "those of --input alone");
  cmd->footer(
      R"(A package holds the plan, the constants and native kernels of a model, and is run by `tbx run`, `bench` and
`explain`, tensorbox.Session and Session::load like the model. It is native code: load none from a stranger.
--dim fixes a dimension of the model. A model whose code depends on values or shapes that only a run brings is
refused, unless those are few, such as axes. With --for-inputs-seen and these in --input the model is run once, and
the package holds the code for such inputs alone; `tbx explain` says which. docs/packages.md has more.
Examples:
  tbx compile model.onnx -o model.tbx
  tbx run model.tbx --input image=cat.png
  tbx compile model.onnx -o model_8.tbx --isa avx512,avx2 --dim batch=8 --precision bf16
  tbx compile model.onnx -o model.tbx --device cuda:sm_90
  tbx compile model.onnx -o model.tbx --input shape=shape.npy --for-inputs-seen)");
  cmd->callback([o] { compile(*o); });
}

} // namespace tbx::tools
