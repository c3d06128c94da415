// tbx compare: a model against itself under other options, another model or recorded values, value by value.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "tools/common.h"
#include "tools/difference.h"
#include "tools/files.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

struct CompareArguments {
  ModelOptions model;
  std::string reference, expected, reference_isa;
  bool reference_compiled = false, reference_evaluated = false, all = false, every_node = false;
  std::optional<double> rtol, atol;
};

/// The values of one run in execution order.
struct Values {
  std::vector<OwnedTensor> list;
  size_t outputs = 0; ///< how many at the end are outputs of the model or of nodes
  std::unordered_map<std::string, std::string> nodes; ///< "name (OpType)" by value, where known
};

/// Tensors in a value: itself, or the elements of a sequence or map.
void append(std::vector<OwnedTensor>& list, const std::string& name, const OnnxValue& v) {
  if (v.kind == OnnxValue::tensor) list.push_back(copy_of(name, v.type, v.dims, v.data, v.strings.get()));
  for (size_t i = 0; i < v.elements.size(); ++i) append(list, fmt::format("{}[{}]", name, i), v.elements[i]);
}

/// All outputs, of whatever type. A session made with every_value has what every node computes among them.
Values every_value(const Session& session, std::vector<OwnedTensor>& inputs) {
  Values values;
  for (const auto& [name, value] : session.run_values(values_of(inputs)).value())
    append(values.list, name, value);
  for (const TensorInfo& info : session.outputs()) values.nodes[info.name] = info.node;
  values.outputs = values.list.size();
  return values;
}

/// What is in memory during a run, and the outputs; of models with sequences or maps these alone. `what`: as
/// progress, since plain loops take long.
Values observe(const Session& session, std::vector<OwnedTensor>& inputs, const std::string& what,
               const ModelOptions& options) {
  if (takes_or_gives_values(session)) return every_value(session, inputs);
  Values values;
  const size_t steps = session.explain().size();
  const Progress progress(options);
  auto outputs = session
                     .run_observed(views(inputs),
                                   [&](const std::string& name, const TensorView& v) {
                                     values.list.push_back(copy_of(name, v.type, v.dims, v.data));
                                     progress.show(what, std::min(values.list.size(), steps), steps);
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
Values reference_values(const CompareArguments& o, std::vector<OwnedTensor>& inputs,
                        std::string& description) {
  description = o.reference;
  if (is_archive(o.reference)) return {read_npz(o.reference), 0, {}};
  ModelOptions other = o.model;
  if (is_package(o.reference)) { // as it was compiled
    other.model = o.reference;
    return observe(other.open(), inputs, "run of the reference", other);
  }
  other.compile.fuse = other.compile.fuse_extern = false; // more values are in memory
  if (o.every_node) other.compile.disabled_passes = pass_names();
  bool compiled =
      o.reference_compiled || !o.reference_isa.empty() || (!o.reference.empty() && !o.reference_evaluated);
  other.compile.reference = !compiled && !o.reference_evaluated;
  other.compile.compile = compiled;
  if (!compiled) { // plain loops and the evaluator are the CPU's
    other.compile.device.clear();
    if (other.compile.precision == "tf32") other.compile.precision = "strict";
  }
  if (!o.reference_isa.empty()) other.compile.isa = o.reference_isa;
  std::string how = compiled                ? "generated code without fusion"
                    : o.reference_evaluated ? "the evaluator without fusion"
                                            : "plain loops without fusion and libraries";
  if (!o.reference_isa.empty()) how += " for " + o.reference_isa;
  description = o.reference.empty() ? how : o.reference + ", " + how;
  if (!o.reference.empty()) other.model = o.reference;
  return o.every_node ? every_value(other.open(), inputs)
                      : observe(other.open(), inputs, "run of the reference", other);
}

/// Extents other than 1: what libraries are called with may have more of those.
std::vector<int64_t> extents(const std::vector<int64_t>& dims) {
  std::vector<int64_t> kept;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(kept), [](int64_t n) { return n != 1; });
  return kept;
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
    if (output || extents(w.dims) == extents(got.dims)) other_shape = &w;
  }
  return other_shape;
}

/// What rounding to the types of a precision may change, where the user says nothing: sums of many rounded
/// values differ by some parts in a hundred of their spread (docs/precision.md).
void loosen(Tolerance& t, const std::string& precision) {
  if (precision == "f16" || precision == "tf32") // as many significant bits
    t.spread = 1.25e-2, t.rtol = 4e-3;
  else if (precision == "bf16" || precision == "any")
    t.spread = 1e-1, t.rtol = 3e-2;
}

/// Throws UsageError for what contradicts itself.
void check(const CompareArguments& o) {
  if (!o.expected.empty() && !o.reference.empty())
    throw UsageError("give either REFERENCE or --expected, not both");
  if (!o.expected.empty() && !is_archive(o.expected))
    throw UsageError(fmt::format("--expected {}: expected values are a FILE.npz, by name", o.expected));
  if (o.reference.ends_with(".npy"))
    throw UsageError(fmt::format("{}: a reference is an ONNX file or a FILE.npz, by name", o.reference));
  if (o.reference.empty() && o.expected.empty() && is_package(o.model.model))
    throw UsageError(o.model.model +
                     " is a package, which has no plain loops: give the ONNX model it was made "
                     "of, or recorded values, as the reference");
  for (const std::string& path : {o.model.model, o.reference})
    if (o.every_node && is_package(path))
      throw UsageError("--every-node needs ONNX models: " + path +
                       " is a package, whose nodes are fused already");
  const bool recorded = !o.expected.empty() || is_archive(o.reference);
  if ((recorded || is_package(o.reference)) &&
      (o.reference_compiled || o.reference_evaluated || !o.reference_isa.empty()))
    throw UsageError(fmt::format("{} is {}: leave out how the reference is to be computed",
                                 recorded && !o.expected.empty() ? o.expected : o.reference,
                                 recorded ? "recorded values" : "a package, which is compiled already"));
}

/// What the model computes. Inputs get other sizes where it refuses those that they have.
Values values_of_model(const CompareArguments& o, const Session& session, std::vector<OwnedTensor>& inputs) {
  auto values = [&] {
    return o.every_node ? every_value(session, inputs) : observe(session, inputs, "run", o.model);
  };
  try {
    return values();
  } catch (const Exception& e) {
    find_sizes(session, o.model, inputs, e.failure);
    return values();
  }
}

/// A row for each value that both have, in the order of the model's.
std::vector<Difference> differences(Values& got, const Values& want, const Tolerance& tolerance) {
  std::unordered_multimap<std::string, size_t> by_name;
  for (size_t i = 0; i < want.list.size(); ++i) by_name.emplace(want.list[i].name, i);
  std::vector<Difference> rows;
  for (size_t i = 0; i < got.list.size(); ++i) {
    const bool output = i + got.outputs >= got.list.size();
    if (const OwnedTensor* w = partner(got.list[i], output, want, by_name)) {
      if (!output) got.list[i].dims = w->dims;
      rows.push_back(difference(got.list[i], *w, tolerance, !output)); // inner values may be narrower
      rows.back().node = got.nodes[got.list[i].name];
    }
  }
  return rows;
}

/// `first`: the first row that is bad, null where none is.
void report(const CompareArguments& o, const std::vector<Difference>& rows, const Difference* first,
            const std::string& description) {
  if (o.model.json) {
    Json all{{"model", o.model.model},
             {"reference", description},
             {"compared", rows.size()},
             {"first_difference", first ? to_json(*first) : Json()},
             {"values", Json::array()}};
    for (const Difference& d : rows) all["values"].push_back(to_json(d));
    return print_json(all);
  }
  for (const Difference& d : rows)
    if (o.all || d.bad) say("{} {:40} {}\n", d.bad ? "DIFFER" : "same  ", name_text(d.value), measures(d));
  say("{} values compared with {}\n", rows.size(), description);
  if (first)
    say("first difference: {}{}\n", explain(*first),
        o.every_node ? "" : "\n--every-node looks at what each node computes");
  else
    say("no difference\n");
}

void run(CompareArguments& o, int& code) {
  check(o);
  Tolerance tolerance;
  loosen(tolerance, o.model.compile.precision);
  tolerance.rtol = o.rtol.value_or(tolerance.rtol);
  tolerance.atol = o.atol.value_or(tolerance.atol);
  if (!o.expected.empty()) o.reference = o.expected;
  if (is_archive(o.reference)) read_file(o.reference); // before the long work
  o.model.compile.every_value = o.every_node;
  if (!o.model.seed) o.model.seed = 0; // both sides draw the same random numbers
  Session session = o.model.open();
  std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
  Values got = values_of_model(o, session, inputs);
  std::string description;
  Values want;
  try {
    want = reference_values(o, inputs, description);
  } catch (const Exception& e) { // which of the two it was
    throw Exception(
        {e.failure.kind, fmt::format("{} (in the reference: {})", e.failure.message, description)});
  }
  const std::vector<Difference> rows = differences(got, want, tolerance);
  if (rows.empty())
    throw UsageError(fmt::format("no value is common to {} and {}", o.model.model, description));
  const auto first = std::find_if(rows.begin(), rows.end(), [](const Difference& d) { return d.bad; });
  code = first != rows.end() ? kDiffers : kOk;
  report(o, rows, first != rows.end() ? &*first : nullptr, description);
}

} // namespace

void add_compare(CLI::App& app, int& code) {
  auto o = std::make_shared<CompareArguments>();
  CLI::App* cmd =
      app.add_subcommand("compare", "find the first value that two ways of running a model disagree on");
  o->model.add_to(*cmd);
  o->model.model_option->description("ONNX file, or a package, which needs a reference");
  cmd->add_option("reference", o->reference,
                  "another ONNX file, a package, or recorded values (FILE.npz, by name); default: the same "
                  "model by plain loops, without libraries")
      ->check(CLI::ExistingFile);
  cmd->add_option("--expected", o->expected, "the same as a reference FILE.npz")->check(CLI::ExistingFile);
  auto* compiled = cmd->add_flag("--reference-compiled", o->reference_compiled,
                                 "reference: generated code without fusion");
  auto* evaluated = cmd->add_flag(
      "--reference-evaluated", o->reference_evaluated,
      "reference: the evaluator without fusion, but with library kernels; faster than plain loops");
  evaluated->excludes(compiled);
  cmd->add_option("--reference-isa", o->reference_isa, "reference: generated code for avx512, avx2 or sse")
      ->check(CLI::IsMember({"avx512", "avx2", "sse"}))
      ->excludes(evaluated);
  cmd->add_option("--rtol", o->rtol, "relative tolerance; default: 1e-3, of f16 4e-3, of bf16 and any 3e-2")
      ->check(at_least_zero());
  cmd->add_option("--atol", o->atol,
                  "absolute tolerance; default, in standard deviations of the value: 1e-4, of f16 0.0125, of "
                  "bf16 and any 0.1")
      ->check(at_least_zero());
  cmd->add_flag(
      "--every-node", o->every_node,
      "keep the result of every node in memory and compare node by node, in the order of the graph");
  cmd->add_flag("--all", o->all, "list the values that agree as well");
  cmd->footer(
      R"(Values are compared by name in the order they are computed. As the model really runs, only
values that are in memory can be compared: with fusion few, with --no-fusion more. With --every-node
what each node computes is kept: kernels end at every node, and the reference runs without graph
passes, so that the first value that differs names its node. Exit code: 0 all agree, 1 a value differs.
Examples:
  tbx compare model.onnx                                        against plain loops, without libraries
  tbx compare model.onnx --every-node                           which node differs first
  tbx compare model.onnx --no-fusion --isa avx2 --reference-isa sse
  tbx compare model.onnx changed.onnx --no-fusion               where a changed weight shows first
  tbx compare model.onnx model.tbx                              whether a package computes the same
  tbx run model.onnx --save good.npz --all-values; tbx compare model.onnx good.npz --every-node)");
  cmd->callback([o, &code] { run(*o, code); });
}

} // namespace tbx::tools
