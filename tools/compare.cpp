// tbx compare: a model against itself under other options, or against recorded outputs, value by value.
#include <fmt/format.h>

#include <cmath>

#include "tools/common.h"
#include "tools/files.h"

namespace tbx::tools {
namespace {

struct Options {
  ModelOptions model;
  std::string expected, reference_isa, reference_model;
  bool reference_compiled = false;
  double rtol = 1e-3, atol = 1e-5;
};

struct Difference {
  std::string value;
  std::vector<int64_t> shape;
  double max_abs = 0, max_rel = 0;
  int64_t worst = -1;
  double got = 0, want = 0;
  bool bad = false;
};

Difference compare(const std::string& name, const OwnedTensor& got, const OwnedTensor& want,
                   const Options& o) {
  Difference d;
  d.value = name;
  d.shape = got.dims;
  d.bad = got.dims != want.dims;
  if (d.bad) return d;
  for (int64_t i = 0; i < got.numel(); ++i) {
    double a = element(got.bytes.data(), got.type, i), b = element(want.bytes.data(), want.type, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    double abs = std::fabs(a - b), rel = abs / std::max(std::fabs(b), 1e-30);
    if (!(abs <= o.atol + o.rtol * std::fabs(b))) d.bad = true;
    if (d.worst < 0 || !(abs <= d.max_abs)) {
      d.max_abs = abs;
      d.worst = i;
      d.got = a;
      d.want = b;
    }
    d.max_rel = std::max(d.max_rel, rel);
  }
  return d;
}

OwnedTensor copy_of(const std::string& name, int32_t type, const std::vector<int64_t>& dims,
                    const void* data) {
  OwnedTensor t{name, type, dims, {}};
  const auto* bytes = static_cast<const std::byte*>(data);
  t.bytes.assign(bytes, bytes + t.numel() * element_size(type));
  return t;
}

/// All named values of a run, in execution order, outputs last.
std::vector<OwnedTensor> observe(const Session& session, std::vector<OwnedTensor>& inputs) {
  std::vector<OwnedTensor> values;
  auto outputs = session
                     .run_observed(views(inputs),
                                   [&](const std::string& name, const TensorView& v) {
                                     values.push_back(copy_of(name, v.type, v.dims, v.data));
                                   })
                     .value();
  for (const OutputTensor& out : outputs) values.push_back(copy_of(out.name, out.type, out.dims, out.data));
  return values;
}

void compare(Options& o, int& code) {
  Session session = o.model.open();
  std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
  std::vector<OwnedTensor> got = observe(session, inputs), want;
  std::string reference;
  if (!o.expected.empty()) {
    want = read_npz(o.expected);
    reference = o.expected;
  } else {
    ModelOptions other = o.model;
    if (!o.reference_model.empty()) other.model = o.reference_model;
    other.compile.compile = o.reference_compiled;
    other.compile.isa = o.reference_isa;
    other.compile.fuse = other.compile.fuse_extern = false;
    want = observe(other.open(), inputs);
    reference = o.reference_compiled ? "generated code without fusion" : "the evaluator without fusion";
    if (!o.reference_model.empty()) reference = o.reference_model + " in " + reference;
  }
  Json rows = Json::array();
  const OwnedTensor* first_bad = nullptr;
  Difference first;
  int compared = 0;
  for (const OwnedTensor& g : got)
    for (const OwnedTensor& w : want) {
      if (g.name != w.name) continue;
      Difference d = compare(g.name, g, w, o);
      ++compared;
      rows.push_back({{"value", d.value},
                      {"shape", d.shape},
                      {"max_abs", d.max_abs},
                      {"max_rel", d.max_rel},
                      {"ok", !d.bad}});
      if (d.bad && !first_bad) {
        first_bad = &g;
        first = d;
      }
      break;
    }
  if (compared == 0) throw std::runtime_error("no value is common to both sides");
  code = first_bad ? kDiffers : kOk;
  if (o.model.json) {
    fmt::print("{}\n", Json{{"model", o.model.model},
                            {"reference", reference},
                            {"compared", compared},
                            {"first_difference", first_bad ? Json(first.value) : Json()},
                            {"values", rows}}
                           .dump(2));
    return;
  }
  fmt::print("{} values compared with {}\n", compared, reference);
  for (const Json& row : rows)
    if (!row["ok"].get<bool>() || row == rows.back())
      fmt::print("{} {:40} max abs {:.3g}  max rel {:.3g}\n", row["ok"].get<bool>() ? "same  " : "DIFFER",
                 row["value"].get<std::string>(), row["max_abs"].get<double>(), row["max_rel"].get<double>());
  if (first_bad && first.worst < 0)
    fmt::print("first difference: {} has another shape: [{}]\n", first.value, shape_text(first.shape));
  else if (first_bad)
    fmt::print("first difference: {} [{}] at element {}: {} instead of {}\n", first.value,
               shape_text(first.shape), first.worst, first.got, first.want);
}

} // namespace

void add_compare(CLI::App& app, int& code) {
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("compare", "compare a model with the evaluator, another model or recorded outputs");
  o->model.add_to(*cmd);
  cmd->add_option("reference", o->reference_model, "another model with the same inputs, as the reference")
      ->check(CLI::ExistingFile);
  cmd->add_option("--expected", o->expected, "recorded outputs (.npz, by name) instead of the evaluator");
  cmd->add_flag("--reference-compiled", o->reference_compiled, "reference: generated code without fusion");
  cmd->add_option("--reference-isa", o->reference_isa, "isa of the reference");
  cmd->add_option("--rtol", o->rtol, "relative tolerance");
  cmd->add_option("--atol", o->atol, "absolute tolerance");
  set_examples(*cmd,
               "  tbx compare model.onnx                           against the evaluator, value by value\n"
               "  tbx compare model.onnx changed.onnx              two models, values matched by name\n"
               "  tbx compare model.onnx --isa avx2 --reference-compiled --reference-isa sse\n"
               "  tbx compare model.onnx --input x=x.npy --expected outputs.npz");
  cmd->callback([o, &code] { compare(*o, code); });
}

} // namespace tbx::tools
