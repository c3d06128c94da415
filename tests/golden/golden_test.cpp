// Golden tests of the graph passes: tests/golden/<pass>/<case>.t holds a small model and the graph that the
// pass makes of it ("for: cuda": for a GPU). A failure shows the lines that changed; `tbx_golden_tests
// --update` rewrites the files, and review reads their diff. Every case is also run before and after the
// pass: the values must be the same.
//
//   title                                what the case shows, one line
//   pass: a, b                           optional: the passes to run, instead of the one the folder names
//   tolerance: 1e-5                      optional: of the values, relative to 1 + |value|
//   ----
//   <ir_version: ...> ...                the model in ONNX's text form
//   ====
//   a: 1                                 rewrites per pass, then the graph
//   graph ...
//
// tests/golden/stages/<stage>/<case>.t holds what the stages behind make of a model: lower, schedule, emit
// (C++ for AVX2), cuda. "disabled: a, b" leaves out steps of the schedule. Each case also runs with every
// step left out in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <unordered_map>

#include "codegen/emit.h"
#include "fusion/schedule.h"
#include "graph/passes/graph_passes.h"
#include "graph/passes/passes.h"
#include "lowering/lower.h"
#include "lowering/reference_run.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/extern_runner.h"
#include "tests/support/onnx_text.h"
#include "tests/support/places.h"

namespace tbx::test {
namespace {

namespace fs = std::filesystem;

bool update_files = false;

const fs::path kFolder = fs::path(source_dir()) / "tests/golden";

struct Case {
  fs::path file;
  std::string head, model, expected; ///< the three parts of the file
  std::vector<std::string> passes;
  std::vector<std::string> disabled;
  double tolerance = 1e-5;
  bool cuda = false; ///< passes are for a GPU
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Case read_case(const fs::path& file) {
  Case c{.file = file};
  std::string text = text_of(file);
  size_t model = text.find("----\n"), expected = text.find("====\n");
  if (model == std::string::npos) throw std::runtime_error(file.string() + ": no line '----'");
  c.head = text.substr(0, model);
  c.model = text.substr(model + 5, expected == std::string::npos ? expected : expected - model - 5);
  if (expected != std::string::npos) c.expected = text.substr(expected + 5);
  std::istringstream lines(c.head);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("tolerance: ", 0) == 0) c.tolerance = std::stod(line.substr(11));
    c.cuda |= line == "for: cuda";
    for (auto [key, list] : {std::pair("pass: ", &c.passes), std::pair("disabled: ", &c.disabled)}) {
      if (line.rfind(key, 0) != 0) continue;
      std::istringstream names(line.substr(std::string_view(key).size()));
      for (std::string name; names >> name;) list->push_back(name.substr(0, name.find(',')));
    }
  }
  if (c.passes.empty()) c.passes.push_back(file.parent_path().filename());
  return c;
}

/// Lines of `b` against `a` (-, +) with the unchanged ones between, by longest common subsequence.
std::string diff(const std::string& a, const std::string& b) {
  auto split = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  };
  std::vector<std::string> x = split(a), y = split(b);
  std::vector<std::vector<int>> common(x.size() + 1, std::vector<int>(y.size() + 1, 0));
  for (size_t i = x.size(); i-- > 0;)
    for (size_t j = y.size(); j-- > 0;)
      common[i][j] = x[i] == y[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::string out;
  size_t i = 0, j = 0;
  while (i < x.size() || j < y.size()) {
    if (i < x.size() && j < y.size() && x[i] == y[j]) {
      out += "  " + x[i++] + "\n";
      ++j;
    } else if (i < x.size() && (j == y.size() || common[i + 1][j] >= common[i][j + 1])) {
      out += "- " + x[i++] + "\n";
    } else {
      out += "+ " + y[j++] + "\n";
    }
  }
  return out;
}

/// Inputs of the graph, the same in every run; symbols of its shapes become 2, 3, 4, ...
std::vector<Tensor> inputs_of(const Graph& graph) {
  std::unordered_map<ir::SymInt, int64_t> sizes;
  std::mt19937 random(7);
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs) {
    const ValueType& type = graph.at(id).type;
    std::vector<int64_t> dims;
    for (ir::SymInt d : *type.shape)
      dims.push_back(d.is_constant()
                         ? d.constant()
                         : sizes.try_emplace(d, 2 + static_cast<int64_t>(sizes.size())).first->second);
    Tensor t = Tensor::make(type.dtype, dims);
    for (int64_t i = 0; i < t.numel(); ++i) {
      auto whole = static_cast<int>(random() % 4001) - 2000;
      switch (type.dtype) {
      case DType::f32: t.as_mutable<float>()[i] = static_cast<float>(whole) / 1000; break;
      case DType::f64: t.as_mutable<double>()[i] = whole / 1000.0; break;
      case DType::i64: t.as_mutable<int64_t>()[i] = whole; break;
      case DType::i32: t.as_mutable<int32_t>()[i] = whole; break;
      case DType::boolean: t.as_mutable<uint8_t>()[i] = whole % 2 != 0; break;
      default: throw std::runtime_error("golden models have inputs of f32, f64, i32, i64 or bool");
      }
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  return lowering::run_program(lowering::lower_or_throw(graph), inputs, run_extern);
}

const graph::Pass& find_pass(const std::string& name) {
  for (const graph::Pass& pass : graph::graph_passes())
    if (name == pass.name) return pass;
  throw std::runtime_error("no pass is called '" + name + "'");
}

void expect_same(const std::vector<Tensor>& before, const std::vector<Tensor>& after, double tolerance) {
  ASSERT_EQ(before.size(), after.size());
  for (size_t o = 0; o < before.size(); ++o) {
    ASSERT_EQ(before[o].dims, after[o].dims) << "output " << o;
    ASSERT_EQ(before[o].dtype, after[o].dtype) << "output " << o;
    for (int64_t i = 0; i < before[o].numel(); ++i) {
      double a = element_as_double(before[o], i), b = element_as_double(after[o], i);
      if (std::isnan(a) && std::isnan(b)) continue;
      ASSERT_NEAR(a, b, tolerance * (1 + std::fabs(a))) << "output " << o << ", element " << i;
    }
  }
}

/// A machine that has everything, so that files do not depend on the one at hand.
const graph::PassContext kContext{
    {.byte_group = 1, .bf16_products = true, .f16_products = false}, DType::bf16, DType::bf16};

int apply(const std::string& name, Graph& graph, bool cuda) {
  const graph::Pass& pass = find_pass(name);
  graph::PassContext context = kContext;
  context.target.cuda = cuda;
  return pass.run ? pass.run(graph) : pass.run_for(graph, context);
}

void expect_text(const Case& c, const std::string& got) {
  if (got == c.expected) return;
  if (update_files) {
    std::ofstream(c.file) << c.head << "----\n" << c.model << "====\n" << got;
    return;
  }
  ADD_FAILURE() << "the text changed (- expected, + got; tbx_golden_tests --update accepts it):\n"
                << diff(c.expected, got);
}

class Golden : public testing::TestWithParam<fs::path> {};

TEST_P(Golden, Pass) {
  Case c = read_case(kFolder / GetParam());
  Graph graph = import_proto(parse_text(c.model));
  std::vector<Tensor> inputs = inputs_of(graph), before = run(graph, inputs);

  std::string got;
  for (const std::string& name : c.passes) {
    got += fmt::format("{}: {}\n", name, apply(name, graph, c.cuda));
    verify(graph);
  }
  graph::eliminate_dead_code(graph); // passes rewire and leave what nobody reads any more
  verify(graph);
  got += to_string(graph);
  for (const std::string& name : c.passes) {
    if (name == "eliminate_dead_code") continue;
    EXPECT_EQ(apply(name, graph, c.cuda), 0) << name << " finds more to do the second time";
  }
  expect_same(before, run(graph, inputs), c.tolerance);

  expect_text(c, got);
}

std::vector<fs::path> all_cases(bool of_stages = false) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kFolder)) {
    fs::path file = fs::relative(entry.path(), kFolder);
    if (file.extension() == ".t" && (*file.begin() == "stages") == of_stages) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string case_name(const testing::TestParamInfo<fs::path>& info) {
  std::string name = info.param.parent_path() / info.param.stem();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(all_cases()), case_name);

std::string text_of_stage(const std::string& stage, const Graph& graph,
                          const std::vector<std::string>& disabled) {
  lowering::LowerOptions lower_options;
  Target target = kContext.target;
  target.cuda = stage == "cuda";
  lower_options.target = target;
  ir::Program program = lowering::lower_or_throw(graph, lower_options);
  if (stage == "lower") return ir::to_string(program);
  fusion::ScheduleOptions options;
  options.disabled = disabled;
  options.verify_steps = true;
  const fusion::Schedule schedule = fusion::schedule(std::move(program), target, options);
  if (stage == "schedule") return fusion::to_string(schedule);
  std::string text;
  for (const fusion::Group& group : schedule.groups)
    if (const auto* kernel = std::get_if<ir::KernelProgram>(&group.what))
      text += target.cuda ? codegen::emit_cuda(*kernel, target.gpu).text
                          : codegen::emit_cpp(*kernel, target).text;
  return text;
}

class GoldenStage : public testing::TestWithParam<fs::path> {};

TEST_P(GoldenStage, Text) {
  const Case c = read_case(kFolder / GetParam());
  const onnx::ModelProto model = parse_text(c.model);
  const Graph graph = import_proto(model);
  expect_text(c, text_of_stage(c.file.parent_path().filename(), graph, c.disabled));

  std::vector<Tensor> inputs = inputs_of(graph);
  const std::vector<Tensor> want = run(graph, inputs);
  Session::Inputs given;
  for (size_t i = 0; i < inputs.size(); ++i)
    given.push_back({graph.at(graph.inputs[i]).name,
                     {inputs[i].mutable_data(), static_cast<int32_t>(inputs[i].dtype), inputs[i].dims}});
  const std::string bytes = to_bytes(model);
  for (const fusion::ScheduleStep& step : fusion::schedule_steps()) {
    if (!step.wanted) continue;
    SCOPED_TRACE(std::string("without ") + step.name);
    CompileOptions options;
    options.compile = false;
    options.disabled_passes = {step.name};
    const auto got = Session::compile(std::as_bytes(std::span(bytes)), options).value().run(given).value();
    ASSERT_EQ(got.size(), want.size());
    for (size_t o = 0; o < want.size(); ++o) {
      const auto values = got[o].values<float>();
      ASSERT_EQ(values.size(), static_cast<size_t>(want[o].numel()));
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], element_as_double(want[o], static_cast<int64_t>(i)), c.tolerance * 10);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenStage, testing::ValuesIn(all_cases(true)), case_name);

TEST(GoldenFiles, EveryPassHasOneThatFires) {
  std::set<std::string> fired;
  for (const fs::path& file : all_cases()) {
    Case c = read_case(kFolder / file);
    for (const std::string& name : c.passes)
      if (c.expected.find(name + ": 0\n") == std::string::npos) fired.insert(name);
  }
  for (const graph::Pass& pass : graph::graph_passes())
    EXPECT_TRUE(fired.contains(pass.name)) << "no file in tests/golden/" << pass.name;
}

} // namespace
} // namespace tbx::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--update") tbx::test::update_files = true;
  return RUN_ALL_TESTS();
}
