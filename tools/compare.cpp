// tbx compare: a model against itself under other options, another model or recorded values, value by value.
#include <fmt/format.h>

#include <cmath>
#include <unordered_map>

#include "tools/common.h"
#include "tools/files.h"

namespace tbx::tools {
namespace {

struct Options {
  ModelOptions model;
  std::string reference, expected, reference_isa;
  bool reference_compiled = false, all = false;
  double rtol = 1e-3, atol = -1; ///< atol below 0: relative to the spread of the value
};

/// The values of one run in execution order, the model's outputs last.
struct Values {
  std::vector<OwnedTensor> list;
  size_t outputs = 0; ///< how many at the end are outputs
};

struct Difference {
  std::string value;
  std::vector<int64_t> shape, wanted_shape;
  std::string what = "values"; ///< what differs if `bad`: "type", "shape" or "values"
  double max_abs = 0, max_rel = 0;
  int64_t worst = -1, differing = 0;
  double got = 0, want = 0;
  bool bad = false;
};

double spread(const OwnedTensor& t) {
  double sum = 0, squares = 0;
  int64_t n = 0;
  for (int64_t i = 0; i < t.numel(); ++i) {
    double v = element(t.bytes.data(), t.type, i);
    if (!std::isfinite(v)) continue;
    sum += v;
    squares += v * v;
    ++n;
  }
  double mean = n ? sum / static_cast<double>(n) : 0;
  return n ? std::sqrt(std::max(0.0, squares / static_cast<double>(n) - mean * mean)) : 0;
}

Difference compare(const OwnedTensor& got, const OwnedTensor& want, const Options& o) {
  Difference d;
  d.value = got.name;
  d.shape = got.dims;
  d.wanted_shape = want.dims;
  d.bad = true;
  if (got.dims != want.dims) return d.what = "shape", d;
  if (got.type != want.type) return d.what = "type", d;
  d.bad = false;
  if (got.type == OwnedTensor::kString) {
    for (size_t i = 0; i < got.strings.size(); ++i)
      if (got.strings[i] != want.strings[i] && d.differing++ == 0) d.worst = static_cast<int64_t>(i);
    d.bad = d.differing > 0;
    d.what = "strings";
    return d;
  }
  double atol = o.atol >= 0 ? o.atol : 1e-4 * spread(want);
  for (int64_t i = 0; i < got.numel(); ++i) {
    double a = element(got.bytes.data(), got.type, i), b = element(want.bytes.data(), want.type, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    double abs = std::fabs(a - b), rel = abs / std::max(std::fabs(b), 1e-30);
    if (!(abs <= atol + o.rtol * std::fabs(b))) {
      d.bad = true;
      ++d.differing;
    }
    if (d.worst < 0 || !(abs <= d.max_abs)) {
      d.max_abs = abs;
      d.worst = i;
      d.got = a;
      d.want = b;
    }
    if (!(rel <= d.max_rel)) d.max_rel = rel;
  }
  return d;
}

Values observe(const Session& session, std::vector<OwnedTensor>& inputs) {
  Values values;
  auto outputs = session
                     .run_observed(views(inputs),
                                   [&](const std::string& name, const TensorView& v) {
                                     values.list.push_back(copy_of(name, v.type, v.dims, v.data));
                                   })
                     .value();
  for (const OutputTensor& out : outputs) {
    std::erase_if(values.list, [&](const OwnedTensor& t) { return t.name == out.name; });
    values.list.push_back(copy_of(out.name, out.type, out.dims, out.data, out.strings.get()));
  }
  values.outputs = outputs.size();
  return values;
}

bool is_archive(const std::string& path) { return path.size() > 4 && path.ends_with(".npz"); }

/// What the model is compared with, and its description.
Values reference_values(const Options& o, std::vector<OwnedTensor>& inputs, std::string& description) {
  description = o.reference;
  if (is_archive(o.reference)) return {read_npz(o.reference), 0};
  ModelOptions other = o.model;
  other.compile.fuse = other.compile.fuse_extern = false; // more values are in memory
  bool compiled = o.reference_compiled || !o.reference_isa.empty() || !o.reference.empty();
  if (!compiled) other.compile.compile = false;
  if (!o.reference_isa.empty()) other.compile.isa = o.reference_isa;
  std::string how = !other.compile.compile ? "the evaluator without fusion" : "generated code without fusion";
  if (!o.reference_isa.empty()) how += " for " + o.reference_isa;
  description = o.reference.empty() ? how : o.reference + ", " + how;
  if (!o.reference.empty()) other.model = o.reference;
  return observe(other.open(), inputs);
}

/// The value to compare with: equal name and shape; for outputs equal name. A name may belong to several
/// arrays, as a view of other shape can be in memory too.
const OwnedTensor* partner(const OwnedTensor& got, bool output, const Values& want,
                           const std::unordered_multimap<std::string, size_t>& by_name) {
  const OwnedTensor* other_shape = nullptr;
  auto [begin, end] = by_name.equal_range(got.name);
  for (auto it = begin; it != end; ++it) {
    const OwnedTensor& w = want.list[it->second];
    if (w.dims == got.dims) return &w;
    other_shape = &w;
  }
  return output ? other_shape : nullptr;
}

Json to_json(const Difference& d) {
  Json row{
      {"value", d.value}, {"shape", d.shape}, {"ok", !d.bad}, {"max_abs", d.max_abs}, {"max_rel", d.max_rel}};
  if (d.bad) row["differs_in"] = d.what;
  if (d.bad && d.what == "shape") row["expected_shape"] = d.wanted_shape;
  if (d.worst >= 0) {
    row["worst_index"] = d.worst;
    row["got"] = d.got;
    row["expected"] = d.want;
    row["differing"] = d.differing;
  }
  return row;
}

std::string explain(const Difference& d) {
  if (d.what == "type") return fmt::format("{}: other element type", d.value);
  if (d.what == "shape")
    return fmt::format("{}: shape {} instead of {}", d.value, shape_text(d.shape),
                       shape_text(d.wanted_shape));
  if (d.what == "strings")
    return fmt::format("{} [{}] at element {}: other text", d.value, shape_text(d.shape), d.worst);
  return fmt::format("{} [{}] at element {}: {:.9g} instead of {:.9g} (the worst of {} that differ)", d.value,
                     shape_text(d.shape), d.worst, d.got, d.want, d.differing);
}

void run(Options& o, int& code) {
  if (!o.expected.empty() && !o.reference.empty())
    throw UsageError("give either REFERENCE or --expected, not both");
  if (!o.expected.empty()) o.reference = o.expected;
  if (is_archive(o.reference)) read_file(o.reference); // before the long work
  Session session = o.model.open();
  std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
  Values got = observe(session, inputs);
  std::string description;
  Values want = reference_values(o, inputs, description);
  std::unordered_multimap<std::string, size_t> by_name;
  for (size_t i = 0; i < want.list.size(); ++i) by_name.emplace(want.list[i].name, i);
  std::vector<Difference> rows;
  for (size_t i = 0; i < got.list.size(); ++i)
    if (const OwnedTensor* w = partner(got.list[i], i + got.outputs >= got.list.size(), want, by_name))
      rows.push_back(compare(got.list[i], *w, o));
  if (rows.empty())
    throw UsageError(fmt::format("no value is common to {} and {}", o.model.model, description));
  auto first = std::find_if(rows.begin(), rows.end(), [](const Difference& d) { return d.bad; });
  code = first != rows.end() ? kDiffers : kOk;
  if (o.model.json) {
    Json report{{"model", o.model.model},
                {"reference", description},
                {"compared", rows.size()},
                {"first_difference", first != rows.end() ? to_json(*first) : Json()},
                {"values", Json::array()}};
    for (const Difference& d : rows) report["values"].push_back(to_json(d));
    return print_json(report);
  }
  for (const Difference& d : rows)
    if (o.all || d.bad)
      fmt::print("{} {:40} max abs {:.3g}  max rel {:.3g}\n", d.bad ? "DIFFER" : "same  ", d.value, d.max_abs,
                 d.max_rel);
  fmt::print("{} values compared with {}\n", rows.size(), description);
  if (first != rows.end())
    fmt::print("first difference: {}\n", explain(*first));
  else
    fmt::print("no difference\n");
}

} // namespace

void add_compare(CLI::App& app, int& code) {
  auto o = std::make_shared<Options>();
  CLI::App* cmd =
      app.add_subcommand("compare", "find the first value that two ways of running a model disagree on");
  o->model.add_to(*cmd);
  cmd->add_option("reference", o->reference,
                  "another ONNX file, or recorded values (FILE.npz, by name); default: the same model in the "
                  "evaluator")
      ->check(CLI::ExistingFile);
  cmd->add_option("--expected", o->expected, "the same as a reference FILE.npz")->check(CLI::ExistingFile);
  cmd->add_flag("--reference-compiled", o->reference_compiled, "reference: generated code without fusion");
  cmd->add_option("--reference-isa", o->reference_isa, "reference: generated code for avx512, avx2 or sse")
      ->check(CLI::IsMember({"avx512", "avx2", "sse"}));
  cmd->add_option("--rtol", o->rtol, "relative tolerance (default 1e-3)")->check(CLI::NonNegativeNumber);
  cmd->add_option("--atol", o->atol, "absolute tolerance; default: 1e-4 of the value's standard deviation")
      ->check(CLI::NonNegativeNumber);
  cmd->add_flag("--all", o->all, "list the values that agree as well");
  cmd->footer(
      R"(Values are compared by name in the order they are computed. Only values that are in
memory can be compared: with fusion few, with --no-fusion more. Exit code: 0 all agree, 1 a value differs.
Examples:
  tbx compare model.onnx                                        fused kernels against the evaluator
  tbx compare model.onnx --no-fusion --isa avx2 --reference-isa sse
  tbx compare model.onnx changed.onnx --no-fusion               where a changed weight shows first
  tbx run model.onnx --save good.npz --all-values; tbx compare model.onnx good.npz)");
  cmd->callback([o, &code] { run(*o, code); });
}

} // namespace tbx::tools
