// tbx run: runs a model once on files or random values and shows or saves its outputs.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "tools/common.h"
#include "tools/files.h"

namespace tbx::tools {
namespace {

struct Options {
  ModelOptions model;
  std::string save;
};

Json describe(const OutputTensor& o) {
  int64_t n = 1;
  for (int64_t d : o.dims) n *= d;
  double lo = std::numeric_limits<double>::infinity(), hi = -lo, sum = 0;
  Json first = Json::array();
  int64_t nans = 0;
  for (int64_t i = 0; i < n && !o.strings; ++i) {
    double v = element(o.data, o.type, i);
    if (std::isnan(v)) ++nans;
    lo = std::min(lo, v);
    hi = std::max(hi, v);
    sum += v;
    if (i < 8) first.push_back(v);
  }
  return {{"name", o.name},    {"type", std::string(name_of(static_cast<DType>(o.type)))},
          {"shape", o.dims},   {"min", n ? lo : 0},
          {"max", n ? hi : 0}, {"mean", n ? sum / static_cast<double>(n) : 0},
          {"nan", nans},       {"first", first}};
}

void run(Options& o) {
  Session session = o.model.open();
  std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
  auto start = std::chrono::steady_clock::now();
  std::vector<OutputTensor> outputs = session.run(views(inputs)).value();
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (!o.save.empty()) {
    std::vector<OwnedTensor> saved;
    for (const OutputTensor& out : outputs) {
      OwnedTensor t{out.name, out.type, out.dims, {}};
      const auto* bytes = static_cast<const std::byte*>(out.data);
      t.bytes.assign(bytes, bytes + t.numel() * element_size(t.type));
      saved.push_back(std::move(t));
    }
    write_npz(o.save, saved);
  }
  Json report{{"model", o.model.model}, {"run_ms", ms}, {"compile_ms", session.stats().total_ms}};
  for (const OutputTensor& out : outputs) report["outputs"].push_back(describe(out));
  if (o.model.json) {
    fmt::print("{}\n", report.dump(2));
    return;
  }
  for (const Json& out : report["outputs"])
    fmt::print("{}  {} {}  min {:.6g}  max {:.6g}  mean {:.6g}{}\n", out["name"].get<std::string>(),
               out["type"].get<std::string>(), shape_text(out["shape"].get<std::vector<int64_t>>()),
               out["min"].get<double>(), out["max"].get<double>(), out["mean"].get<double>(),
               out["nan"].get<int64_t>() ? fmt::format("  NaN {}", out["nan"].get<int64_t>()) : "");
  fmt::print("compiled in {:.0f} ms, ran in {:.2f} ms\n", session.stats().total_ms, ms);
}

} // namespace

void add_run(CLI::App& app, int&) {
  auto o = std::make_shared<Options>();
  CLI::App* cmd = app.add_subcommand("run", "run a model once");
  o->model.add_to(*cmd);
  cmd->add_option("--save", o->save, "write the outputs to this .npz file");
  set_examples(*cmd, "  tbx run model.onnx                                    random inputs\n"
                     "  tbx run model.onnx --input image=cat.png --save out.npz\n"
                     "  tbx run model.onnx --input ids=ids.npy --dim batch=4 --json");
  cmd->callback([o] { run(*o); });
}

} // namespace tbx::tools
