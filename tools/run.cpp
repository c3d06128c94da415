// tbx run: runs a model once on files or random values and shows or saves its outputs.
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "base/dtype.h"
#include "tools/common.h"
#include "tools/files.h"
#include "tools/say.h"

namespace tbx::tools {
namespace {

struct RunArguments {
  ModelOptions model;
  std::string save;
  bool all_values = false;
};

/// Integers as such: a double does not hold all of them.
Json number(const OnnxValue& o, int64_t i) {
  const auto type = static_cast<DType>(o.type);
  if (type == DType::i64) return static_cast<const int64_t*>(o.data)[i];
  if (type == DType::u64) return static_cast<const uint64_t*>(o.data)[i];
  const double v = element(o.data, o.type, i);
  return is_integer(type) || type == DType::boolean ? Json(static_cast<int64_t>(v)) : Json(v);
}

Json numbers(const OnnxValue& o) {
  int64_t n = 1;
  for (int64_t d : o.dims) n *= d;
  int64_t least = -1, most = -1, nans = 0;
  double lo = 0, hi = 0, sum = 0;
  Json first = Json::array();
  for (int64_t i = 0; i < n; ++i) {
    double v = element(o.data, o.type, i);
    if (i < 8) first.push_back(number(o, i));
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    if (least < 0 || v < lo) least = i, lo = v;
    if (most < 0 || v > hi) most = i, hi = v;
    sum += v;
  }
  int64_t good = n - nans;
  return {{"min", good ? number(o, least) : Json()},
          {"max", good ? number(o, most) : Json()},
          {"mean", good ? Json(sum / static_cast<double>(good)) : Json()},
          {"nan", nans},
          {"first", first}};
}

Json describe(const std::string& name, const OnnxValue& o) {
  Json row{{"name", name}};
  if (o.kind == OnnxValue::none) row["type"] = "none";
  if (o.kind == OnnxValue::map) row["type"] = "map";
  if (o.kind == OnnxValue::sequence) row["type"] = "sequence";
  if (o.kind == OnnxValue::sequence || o.kind == OnnxValue::map) {
    row["elements"] = Json::array();
    for (const OnnxValue& e : o.elements) row["elements"].push_back(describe("", e));
  }
  if (o.kind != OnnxValue::tensor) return row;
  row["type"] = std::string(name_of(static_cast<DType>(o.type)));
  row["shape"] = o.dims;
  if (o.strings)
    row["first"] = std::vector<std::string>(o.strings->begin(),
                                            o.strings->begin() + std::min<size_t>(8, o.strings->size()));
  else if (!is_complex(static_cast<DType>(o.type)))
    row.update(numbers(o));
  return row;
}

std::string line(const Json& row) {
  if (row.contains("elements"))
    return fmt::format("{} of {}", row["type"].get<std::string>(), row["elements"].size());
  if (!row.contains("shape")) return row["type"].get<std::string>();
  std::string text = fmt::format("{} {}", row["type"].get<std::string>(),
                                 shape_text(row["shape"].get<std::vector<int64_t>>()));
  auto shown = [&](const char* key) {
    return row[key].is_number_float() ? fmt::format("{:.6g}", row[key].get<double>()) : row[key].dump();
  };
  if (row.contains("min") && !row["min"].is_null())
    text += fmt::format("  min {}  max {}  mean {}", shown("min"), shown("max"), shown("mean"));
  else if (row.contains("first") && !row.contains("min"))
    text += "  " + row["first"].dump(-1, ' ', false, Json::error_handler_t::replace);
  if (row.contains("nan") && row["nan"] != 0) text += fmt::format("  NaN {}", row["nan"].get<int64_t>());
  return text;
}

void save(const RunArguments& o, const Session::Values& outputs) {
  std::vector<OwnedTensor> saved;
  for (const auto& [name, out] : outputs) {
    if (out.kind != OnnxValue::tensor)
      throw UsageError(
          fmt::format("{}: output '{}' is no tensor and cannot be saved as an array", o.save, name));
    saved.push_back(copy_of(name, out.type, out.dims, out.data, out.strings.get()));
  }
  write_tensors(o.save, saved);
}

void run(RunArguments& o) {
  if (o.all_values && o.save.empty()) throw UsageError("--all-values needs --save FILE.npz");
  if (!o.save.empty())
    if (std::string why = refuses_output(o.save); !why.empty()) throw UsageError("--save " + why);
  o.model.compile.every_value = o.all_values;
  Session session = o.model.open();
  std::vector<OwnedTensor> inputs = make_inputs(session, o.model);
  auto start = std::chrono::steady_clock::now();
  auto result = session.run_values(values_of(inputs));
  if (!result) {
    find_sizes(session, o.model, inputs, result.error());
    start = std::chrono::steady_clock::now();
    result = session.run_values(values_of(inputs));
  }
  Session::Values outputs = std::move(result).value();
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (!o.save.empty()) save(o, outputs);
  Json report{{"model", o.model.model},
              {"compile_ms", session.stats().total_ms},
              {"kept_plan", session.stats().kept_plan},
              {"run_ms", ms},
              {"outputs", Json::array()}};
  for (const auto& [name, out] : outputs) report["outputs"].push_back(describe(name, out));
  if (!o.save.empty()) report["saved"] = o.save;
  if (o.model.compile.tiered) report["evaluated_kernels"] = session.stats().evaluated_kernels;
  if (o.model.json) return print_json(report);
  for (const Json& out : report["outputs"])
    say("{}  {}\n", name_text(out["name"].get<std::string>()), line(out));
  say("{}, ran in {:.2f} ms\n", how_made(o.model, session), ms);
  say_tier(o.model, session);
  if (!o.save.empty()) say("saved to {}\n", o.save);
}

} // namespace

void add_run(CLI::App& app, int&) {
  auto o = std::make_shared<RunArguments>();
  CLI::App* cmd = app.add_subcommand("run", "run a model once, show or save its outputs");
  o->model.add_to(*cmd);
  o->model.add_tiered(*cmd);
  cmd->add_option(
      "--save", o->save,
      "write the outputs: FILE.npz (all, by name; a name that is a path out of a folder is written as in "
      "a URL) or FILE.npy (a single one)");
  cmd->add_flag("--all-values", o->all_values,
                "save what every node computes as well, for `tbx compare --every-node`");
  cmd->footer(R"(Examples:
  tbx run model.onnx                                    random inputs, symbolic dimensions of size 1
  tbx run model.onnx --dim batch=8 --seed 7 --json
  tbx run model.onnx --input image=cat.png --save out.npz
  tbx run model.onnx --input ids=data.npz:input_ids --input mask=mask.npy
  tbx run model.onnx --input x=test_data_set_0/input_0.pb --save y.npy)");
  cmd->callback([o] { run(*o); });
}

} // namespace tbx::tools
