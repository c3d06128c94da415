// The ONNX backend suite from files, through the public API, in several configurations.
//
//   $TBX_SUITE_CASES            the folder dump_cases.py wrote
//   $TBX_SUITE_CONFIGURATIONS   names separated by commas; all of them when it is not set
//
// One GoogleTest test per configuration and case: Default/node_test_abs_cpu. Cases are those of
// tests/conformance/manifest.txt and those that only the suite's own comparison cannot pass. Runs in parallel
// by GoogleTest's sharding (GTEST_TOTAL_SHARDS, GTEST_SHARD_INDEX).
#include <gtest/gtest.h>
#include <onnx/onnx-data.pb.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/error.h"
#include "extern_kernels/catalogue.h"
#include "importer/import.h"
#include "importer/tensors.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/places.h"

namespace tbx {
namespace {

namespace fs = std::filesystem;

struct Configuration {
  const char* name;
  void (*set)(CompileOptions&);
  bool inputs_as_constants = false;
};

const Configuration kConfigurations[] = {
    {"Default", [](CompileOptions&) {}},
    {"NoFusionNoExtern", [](CompileOptions& o) { o.fuse = o.fuse_extern = false; }},
    {"Evaluator", [](CompileOptions& o) { o.reference = true; }},
    {"AllDimsDynamic", [](CompileOptions& o) { o.all_dims_dynamic = true; }},
    {"InputsAsConstants", [](CompileOptions&) {}, true},
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

template <class Proto> Proto parse(const fs::path& path) {
  Proto proto;
  if (!proto.ParseFromString(read_file(path))) throw std::runtime_error("cannot read " + path.string());
  return proto;
}

OnnxValue to_value(onnx::TensorProto proto) {
  const ImportOptions options;
  auto tensor = importer::TensorReader(options, {}, {}).read(proto, "value");
  OnnxValue v;
  v.kind = OnnxValue::tensor;
  v.type = static_cast<int32_t>(tensor->dtype);
  v.dims = tensor->dims;
  v.data = const_cast<std::byte*>(tensor->data);
  v.strings = tensor->strings;
  v.owner = std::const_pointer_cast<Tensor>(tensor);
  return v;
}

OnnxValue to_value(const onnx::SequenceProto& proto) {
  std::vector<OnnxValue> elements;
  for (const auto& t : proto.tensor_values()) elements.push_back(to_value(t));
  for (const auto& s : proto.sequence_values()) elements.push_back(to_value(s));
  return OnnxValue::of_sequence(std::move(elements));
}

/// Cases whose expected results a configuration does not repeat, and why. Those that it does repeat fail: the
/// entry is to be removed.
struct KnownDifference {
  std::string_view configuration, name, why;
  bool with_f16_products = false; ///< on CPUs alone that multiply float16 (AMX-FP16)
};

constexpr std::string_view kRoundedShares =
    "the model has the shares of its softmax in float16, and so has numpy: both are within the tolerance of "
    "sums in double, and not of each other";

constexpr KnownDifference kKnownDifferences[] = {
    {"Evaluator", "test_dft_inverse_cpu",
     "expects the rounding errors of numpy in single precision where 0 is exact"},
    {"Evaluator", "test_dft_inverse_opset19_cpu", "as test_dft_inverse_cpu"},
    {"Default", "test_attention_4d_causal_fp16_expanded_cpu", kRoundedShares, true},
    {"NoFusionNoExtern", "test_attention_4d_causal_fp16_expanded_cpu", kRoundedShares, true},
    {"Evaluator", "test_attention_4d_causal_fp16_expanded_cpu", kRoundedShares, true},
    {"AllDimsDynamic", "test_attention_4d_causal_fp16_expanded_cpu", kRoundedShares, true},
};

/// <stem>.tensor.pb, <stem>.sequence.pb or <stem>.optional.pb; nullopt when there is none.
std::optional<OnnxValue> read_value(const std::string& stem) {
  if (fs::exists(stem + ".tensor.pb")) return to_value(parse<onnx::TensorProto>(stem + ".tensor.pb"));
  if (fs::exists(stem + ".sequence.pb")) return to_value(parse<onnx::SequenceProto>(stem + ".sequence.pb"));
  if (fs::exists(stem + ".optional.pb")) return OnnxValue();
  return std::nullopt;
}

Tensor tensor_of(const OnnxValue& v) {
  Tensor t;
  t.dtype = static_cast<DType>(v.type);
  t.dims = v.dims;
  t.data = static_cast<const std::byte*>(v.data);
  t.strings = v.strings;
  return t;
}

/// As numpy.testing.assert_allclose(got, want, rtol, atol) and equality of type and shape; what differs, or
/// empty.
std::string difference(const OnnxValue& got, const OnnxValue& want, double rtol, double atol) {
  if (got.kind != want.kind)
    return fmt::format("a value of kind {} instead of {}", int(got.kind), int(want.kind));
  if (want.kind == OnnxValue::sequence) {
    if (got.elements.size() != want.elements.size())
      return fmt::format("{} elements instead of {}", got.elements.size(), want.elements.size());
    for (size_t i = 0; i < want.elements.size(); ++i)
      if (auto d = difference(got.elements[i], want.elements[i], rtol, atol); !d.empty())
        return fmt::format("element {}: {}", i, d);
  }
  if (want.kind != OnnxValue::tensor) return {};
  const Tensor a = tensor_of(got), b = tensor_of(want);
  if (a.dtype != b.dtype) return fmt::format("type {} instead of {}", name_of(a.dtype), name_of(b.dtype));
  if (a.dims != b.dims)
    return fmt::format("shape [{}] instead of [{}]", fmt::join(a.dims, ", "), fmt::join(b.dims, ", "));
  if (b.dtype == DType::string) return *a.strings == *b.strings ? "" : "other strings";
  if (b.dtype == DType::bf16) rtol = std::max(rtol, 0x1p-6); // as the suite does: two units in the last place
  for (int64_t i = 0, n = b.numel(); i < n; ++i) {
    double x = element_as_double(a, i), y = element_as_double(b, i);
    bool same = x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= atol + rtol * std::abs(y);
    if (!same) return fmt::format("element {}: {} instead of {}", i, x, y);
  }
  return {};
}

/// The model with these tensor inputs as initializers.
onnx::ModelProto with_constants(const onnx::ModelProto& model, const fs::path& set) {
  onnx::ModelProto changed = model;
  changed.set_ir_version(
      std::max<int64_t>(model.ir_version(), 4)); // since when initializers need not be inputs
  auto* graph = changed.mutable_graph();
  graph->clear_input();
  int next = 0;
  for (const auto& input : model.graph().input()) {
    auto is_same = [&](const auto& t) { return t.name() == input.name(); };
    if (std::any_of(model.graph().initializer().begin(), model.graph().initializer().end(), is_same))
      continue;
    fs::path file = set / fmt::format("input_{}.tensor.pb", next++);
    if (fs::exists(file) && input.type().has_tensor_type()) {
      *graph->add_initializer() = parse<onnx::TensorProto>(file);
      graph->mutable_initializer()->rbegin()->set_name(input.name());
    } else {
      *graph->add_input() = input;
    }
  }
  return changed;
}

class SuiteCase : public testing::Test {
public:
  SuiteCase(const Configuration& configuration, fs::path folder)
      : configuration_(configuration), folder_(std::move(folder)) {}

  void TestBody() override {
    CompileOptions options;
    configuration_.set(options);
    auto model = parse<onnx::ModelProto>(folder_ / "model.onnx");
    double rtol = 0, atol = 0;
    std::stringstream(read_file(folder_ / "case.txt")) >> rtol >> atol;
    ASSERT_GT(rtol, 0);
    int compared = 0;
    for (int n = 0; fs::exists(folder_ / fmt::format("set_{}", n)); ++n) {
      fs::path set = folder_ / fmt::format("set_{}", n);
      std::string bytes =
          (configuration_.inputs_as_constants ? with_constants(model, set) : model).SerializeAsString();
      auto compiled = Session::compile(std::as_bytes(std::span(bytes)), options);
      ASSERT_TRUE(compiled.ok()) << compiled.error().message;
      run(compiled.value(), set, rtol, atol, compared);
    }
    EXPECT_GT(compared, 0) << "no output was compared";
  }

private:
  /// The case's inputs in the order of the original model, as far as the session has them.
  void run(const Session& session, const fs::path& set, double rtol, double atol, int& compared) {
    Session::Values inputs;
    auto model = parse<onnx::ModelProto>(folder_ / "model.onnx");
    int next = 0;
    for (const auto& input : model.graph().input()) {
      auto is_same = [&](const auto& t) { return t.name() == input.name(); };
      if (std::any_of(model.graph().initializer().begin(), model.graph().initializer().end(), is_same))
        continue;
      auto value = read_value((set / fmt::format("input_{}", next++)).string());
      if (value && std::any_of(session.inputs().begin(), session.inputs().end(),
                               [&](const TensorInfo& i) { return i.name == input.name(); }))
        inputs.emplace_back(input.name(), *std::move(value));
    }
    auto outputs = session.run_values(inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.error().message;
    for (size_t i = 0;; ++i) {
      auto want = read_value((set / fmt::format("output_{}", i)).string());
      if (!want) {
        EXPECT_EQ(outputs.value().size(), i) << "outputs";
        return;
      }
      ASSERT_LT(i, outputs.value().size()) << "outputs";
      const std::string found = difference(outputs.value()[i].second, *want, rtol, atol);
      if (is_known_to_differ())
        EXPECT_NE(found, "") << "output " << i
                             << " is as expected: its entry in kKnownDifferences is out of date";
      else
        EXPECT_EQ(found, "") << "output " << i;
      ++compared;
    }
  }

  bool is_known_to_differ() const {
    return std::any_of(
        std::begin(kKnownDifferences), std::end(kKnownDifferences), [&](const KnownDifference& k) {
          return k.configuration == configuration_.name && k.name == folder_.filename().string() &&
                 (!k.with_f16_products || extern_kernels::has_half_products(DType::f16));
        });
  }

  const Configuration& configuration_;
  fs::path folder_;
};

bool is_wanted(const std::string& configuration) {
  const char* chosen = std::getenv("TBX_SUITE_CONFIGURATIONS");
  if (!chosen) return true;
  return ("," + std::string(chosen) + ",").find("," + configuration + ",") != std::string::npos;
}

/// The suite takes len() of the elements of a sequence, here tensors of rank 0: it raises whatever they hold.
constexpr const char* kNotComparableByTheSuite[] = {"node/test_loop16_seq_none_cpu"};

void register_cases(const fs::path& cases) {
  std::ifstream manifest(test::source_dir() + "/tests/conformance/manifest.txt");
  std::vector<std::string> names(std::begin(kNotComparableByTheSuite), std::end(kNotComparableByTheSuite));
  for (std::string line; std::getline(manifest, line);)
    if (!line.empty() && line[0] != '#') names.push_back(line);
  for (const Configuration& configuration : kConfigurations) {
    if (!is_wanted(configuration.name)) continue;
    for (const std::string& name : names) {
      std::string test = name;
      std::replace(test.begin(), test.end(), '/', '_');
      testing::RegisterTest(configuration.name, test.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [&configuration, folder = cases / name]() -> testing::Test* {
                              return new SuiteCase(configuration, folder);
                            });
    }
  }
}

} // namespace
} // namespace tbx

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* cases = std::getenv("TBX_SUITE_CASES");
  if (!cases || !std::filesystem::exists(std::filesystem::path(cases) / "version.txt")) {
    std::cerr << "TBX_SUITE_CASES is not a folder of cases; make one with tests/suite/dump_cases.py\n";
    return 2;
  }
  tbx::register_cases(cases);
  return RUN_ALL_TESTS();
}
