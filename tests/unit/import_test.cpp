// Importing good models: constants of all forms, types and symbols, subgraphs, functions, options.
#include <gmock/gmock.h>
#include <onnx/checker.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/error.h"
#include "graph/function_body.h"
#include "importer/export.h"
#include "importer/schemas.h"
#include "ir/symint.h"
#include "tests/support/onnx_text.h"
#include "tests/support/places.h"

namespace tbx {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string shape_of(const Graph& g, const std::string& name) {
  ValueId id = find_value(g, name);
  if (id < 0) return "no value " + name;
  const auto& type = g.at(id).type;
  return std::string(name_of(type.dtype)) + (type.shape ? ir::to_string(*type.shape) : "[?]");
}

const Tensor& constant(const Graph& g, const std::string& name) {
  ValueId id = find_value(g, name);
  if (id < 0 || !g.at(id).constant) throw std::runtime_error("no constant " + name);
  return *g.at(id).constant;
}

template <class T> std::vector<T> elements(const Tensor& t) { return {t.as<T>().begin(), t.as<T>().end()}; }

TEST(Import, SmallGraph) {
  Graph g = import_text("g (float[N, 3] x) => (float[N, 3] y) { t = Relu(x)  y = Add(t, x) }");
  EXPECT_EQ(g.nodes.size(), 2u);
  EXPECT_EQ(g.opset_imports.at(""), 21);
  EXPECT_EQ(g.metadata.at("ir_version"), "10");
  EXPECT_EQ(shape_of(g, "t"), "float32[N, 3]");
  EXPECT_EQ(g.nodes[1].opset, 21);
  EXPECT_EQ(g.at(g.outputs[0]).producer, 1);
  EXPECT_EQ(g.origins[g.nodes[0].origin], "t (Relu)");
  EXPECT_THAT(to_string(g), HasSubstr("= Add-21("));
}

TEST(Import, EqualDimensionNamesAreOneSymbolAndUnnamedOnesAreNot) {
  Graph g = import_text("g (float[N] a, float[N] b, float s, float[M] c) => (float[N] y) { y = Add(a, b) }");
  EXPECT_EQ((*g.at(g.inputs[0]).type.shape)[0], (*g.at(g.inputs[1]).type.shape)[0]);
  EXPECT_FALSE((*g.at(g.inputs[0]).type.shape)[0] == (*g.at(g.inputs[3]).type.shape)[0]);
  EXPECT_EQ(g.at(g.inputs[2]).type.shape->size(), 0u);
  auto model = parse_graph("g (float[?, ?] x) => (float[?, ?] y) { y = Relu(x) }");
  g = import_proto(model);
  EXPECT_EQ(shape_of(g, "x"), "float32[x_dim0, x_dim1]");
  EXPECT_EQ(shape_of(g, "y"), "float32[x_dim0, x_dim1]");
}

TEST(Import, ShapeComputationsArePropagated) {
  Graph g = import_text(R"(g (float[N, 4, 6] x) => (float[N, 24] y)
    <int64[1] zero = {0}, int64[1] last = {24}> {
      s = Shape(x)  n = Gather(s, zero)  t = Concat<axis = 0>(n, last)  y = Reshape(x, t) })");
  EXPECT_EQ(shape_of(g, "y"), "float32[N, 24]");
}

TEST(Import, ConstantNodesOfAllForms) {
  auto model =
      parse_graph(R"(g () => (int64 a, int64[3] b, float c, float[2] d, string e, string[2] f, float[4] h) {
      a = Constant<value_int = 7>()
      b = Constant<value_ints = [1, 2, 3]>()
      c = Constant<value_float = 0.5>()
      d = Constant<value_floats = [1.5, 2.5]>()
      e = Constant<value_string = "hi">()
      f = Constant<value_strings = ["x", "y"]>()
      h = Constant() })");
  auto* sparse = model.mutable_graph()->mutable_node(6)->add_attribute();
  sparse->set_name("sparse_value");
  sparse->set_type(onnx::AttributeProto::SPARSE_TENSOR);
  auto* s = sparse->mutable_sparse_tensor();
  s->add_dims(4);
  s->mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
  s->mutable_values()->add_dims(2);
  s->mutable_values()->add_float_data(5);
  s->mutable_values()->add_float_data(6);
  s->mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  s->mutable_indices()->add_dims(2);
  s->mutable_indices()->add_int64_data(1);
  s->mutable_indices()->add_int64_data(3);
  Graph g = import_proto(model);
  EXPECT_TRUE(g.nodes.empty());
  EXPECT_THAT(elements<int64_t>(constant(g, "a")), ElementsAre(7));
  EXPECT_THAT(elements<int64_t>(constant(g, "b")), ElementsAre(1, 2, 3));
  EXPECT_THAT(elements<float>(constant(g, "c")), ElementsAre(0.5f));
  EXPECT_THAT(elements<float>(constant(g, "d")), ElementsAre(1.5f, 2.5f));
  EXPECT_THAT(*constant(g, "e").strings, ElementsAre("hi"));
  EXPECT_THAT(*constant(g, "f").strings, ElementsAre("x", "y"));
  EXPECT_THAT(elements<float>(constant(g, "h")), ElementsAre(0, 5, 0, 6));
}

onnx::TensorProto tensor(onnx::TensorProto::DataType type, std::vector<int64_t> dims) {
  onnx::TensorProto t;
  t.set_name("w");
  t.set_data_type(type);
  for (int64_t d : dims) t.add_dims(d);
  return t;
}

/// Imports a model that holds one initializer called w.
Graph with_initializer(const onnx::TensorProto& t) {
  auto model = parse_graph("g () => () {}");
  *model.mutable_graph()->add_initializer() = t;
  return import_proto(model);
}

TEST(Import, TensorsOfAllEncodings) {
  auto f16 = tensor(onnx::TensorProto::FLOAT16, {2});
  f16.add_int32_data(0x3c00);
  f16.add_int32_data(0x8000);
  EXPECT_THAT(elements<uint16_t>(constant(with_initializer(f16), "w")), ElementsAre(0x3c00, 0x8000));

  auto i4 = tensor(onnx::TensorProto::INT4, {3});
  i4.set_raw_data("\xf1\x08");
  EXPECT_THAT(elements<int8_t>(constant(with_initializer(i4), "w")), ElementsAre(1, -1, -8));

  auto u2 = tensor(onnx::TensorProto::UINT2, {5});
  u2.add_int32_data(0b11100100);
  u2.add_int32_data(0b10);
  EXPECT_THAT(elements<uint8_t>(constant(with_initializer(u2), "w")), ElementsAre(0, 1, 2, 3, 2));

  auto boolean = tensor(onnx::TensorProto::BOOL, {3});
  boolean.set_raw_data(std::string("\0\2\1", 3));
  EXPECT_THAT(elements<uint8_t>(constant(with_initializer(boolean), "w")), ElementsAre(0, 1, 1));

  auto u32 = tensor(onnx::TensorProto::UINT32, {1});
  u32.add_uint64_data(4'000'000'000);
  EXPECT_THAT(elements<uint32_t>(constant(with_initializer(u32), "w")), ElementsAre(4'000'000'000));

  auto c64 = tensor(onnx::TensorProto::COMPLEX64, {1});
  c64.add_float_data(1);
  c64.add_float_data(-2);
  Graph g = with_initializer(c64);
  const auto* parts = reinterpret_cast<const float*>(constant(g, "w").data);
  EXPECT_EQ(parts[0], 1);
  EXPECT_EQ(parts[1], -2);

  auto empty = tensor(onnx::TensorProto::DOUBLE, {0, 5});
  EXPECT_EQ(constant(with_initializer(empty), "w").numel(), 0);
}

TEST(Import, InitializersThatAreInputsAreConstants) {
  for (int ir_version : {3, 8}) {
    auto model =
        parse_text("<ir_version: 8, opset_import: [\"\": 9]> g (float[2] x, float[2] w) => (float[2] y) "
                   "<float[2] w = {1, 2}> { y = Add(x, w) }");
    model.set_ir_version(ir_version);
    Graph g = import_proto(model);
    ASSERT_EQ(g.inputs.size(), 1u);
    EXPECT_THAT(elements<float>(constant(g, "w")), ElementsAre(1, 2));
  }
}

TEST(Import, NodesOutOfOrderAreSorted) {
  Graph g = import_text("g (float[2] x) => (float[2] y) { y = Neg(b)  b = Abs(a)  a = Relu(x) }");
  ASSERT_EQ(g.nodes.size(), 3u);
  EXPECT_EQ(g.nodes[0].op_type, "Relu");
  EXPECT_EQ(g.nodes[2].op_type, "Neg");
}

TEST(Import, SubgraphsCaptureOuterValues) {
  Graph g = import_text(R"(g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
      d = Neg(x)
      y = If<then_branch = t () => (float[2] a) { a = Add(d, w) },
             else_branch = e () => (float[2] b) {
               b = If<then_branch = t2 () => (float[2] p) { p = Neg(d) },
                      else_branch = e2 () => (float[2] q) { q = Identity(x) }>(c) }>(c) })");
  ASSERT_EQ(g.nodes.size(), 2u);
  EXPECT_EQ(shape_of(g, "y"), "float32[2]");
  const Graph& then_branch = *std::get<std::shared_ptr<Graph>>(g.nodes[1].attributes.at("then_branch"));
  EXPECT_EQ(then_branch.captures.size(), 2u);
  EXPECT_TRUE(then_branch.at(find_value(then_branch, "w")).constant);
  const Graph& else_branch = *std::get<std::shared_ptr<Graph>>(g.nodes[1].attributes.at("else_branch"));
  EXPECT_EQ(else_branch.captures.size(), 3u); // c, and d and x for the graphs inside it
  const Graph& inner = *std::get<std::shared_ptr<Graph>>(else_branch.nodes[0].attributes.at("then_branch"));
  ASSERT_EQ(inner.captures.size(), 1u);
  EXPECT_EQ(else_branch.at(inner.captures[0].outer).name, "d");
}

TEST(Import, LoopBodiesGetTheirInputTypes) {
  Graph g = import_text(R"(g (int64 m, bool c, float[2, 3] x) => (float[2, 3] y, float[?, 2, 3] z) {
      y, z = Loop<body = b (int64 i, bool k, float[2, 3] s) => (bool k2, float[2, 3] s2, float[2, 3] o) {
          k2 = Identity(k)  s2 = Neg(s)  o = Abs(s2) }>(m, c, x) })");
  const Graph& body = *std::get<std::shared_ptr<Graph>>(g.nodes[0].attributes.at("body"));
  EXPECT_EQ(body.inputs.size(), 3u);
  EXPECT_EQ(shape_of(body, "o"), "float32[2, 3]");
  EXPECT_EQ(g.at(find_value(g, "z")).type.shape->size(), 3u);
}

TEST(Import, ABranchThatDoesNotFitIsNoError) {
  Graph g = import_text(R"(g (bool c, float[2, 3] x) => (float[?, ?] y) <int64[1] axes = {0}> {
      y = If<then_branch = t () => (a) { a = Squeeze(x, axes) },
             else_branch = e () => (b) { b = Identity(x) }>(c) })");
  EXPECT_EQ(g.nodes.size(), 1u);
}

constexpr const char* kFunctions = R"(<ir_version: 10, opset_import: ["": 21, "local": 1]>
  g (float[2, 3] x) => (float[2, 3] y) { y = local.twice<alpha = 0.5>(x) }
  <domain: "local", opset_import: ["": 13, "local": 1]> twice <alpha> (a) => (c)
    { b = local.once<alpha: float = @alpha>(a)  c = local.once(b) }
  <domain: "local", opset_import: ["": 6]> once <alpha: float = 0.25> (p) => (q)
    { q = LeakyRelu<alpha: float = @alpha>(p) })";

TEST(Import, FunctionsAreInlinedUnderTheirOwnOperatorSets) {
  Graph g = import_proto(parse_text(kFunctions));
  ASSERT_EQ(g.nodes.size(), 2u);
  EXPECT_EQ(g.nodes[0].op_type, "LeakyRelu");
  EXPECT_EQ(g.nodes[0].opset, 6);
  EXPECT_EQ(std::get<float>(g.nodes[0].attributes.at("alpha")), 0.5f);
  EXPECT_EQ(std::get<float>(g.nodes[1].attributes.at("alpha")), 0.25f);
  EXPECT_EQ(g.at(g.outputs[0]).name, "y");
  EXPECT_EQ(shape_of(g, "y"), "float32[2, 3]");
  EXPECT_EQ(g.origins[g.nodes[0].origin], "y/b/q (LeakyRelu)");
}

TEST(Import, FunctionThatReturnsItsInputKeepsTheOutputName) {
  Graph g = import_proto(parse_text(R"(<ir_version: 10, opset_import: ["": 21, "local": 1]>
    g (float[2] x) => (float[2] y, float[2] z) { y, z = local.both(x) }
    <domain: "local", opset_import: ["": 21]> both (a) => (a, a) { })"));
  EXPECT_EQ(g.at(g.outputs[0]).name, "y");
  EXPECT_EQ(g.at(g.outputs[1]).name, "z");
  EXPECT_EQ(g.nodes.size(), 2u);
}

TEST(Import, FunctionInputsMayBeLeftOut) {
  Graph g = import_proto(parse_text(R"(<ir_version: 10, opset_import: ["": 21, "local": 1]>
    g (float[2] x) => (float[2] y) { y = local.clip(x) }
    <domain: "local", opset_import: ["": 21]> clip (a, lo, hi) => (b) { b = Clip(a, lo, hi) })"));
  EXPECT_THAT(g.nodes[0].inputs, ElementsAre(0, -1, -1));
}

TEST(Import, Options) {
  const std::string text = "g (float[N, 4] x, float[?] z) => (float[N, 4] y) { y = Relu(x) }";
  ImportOptions named;
  named.dim_overrides["N"] = 7;
  EXPECT_EQ(shape_of(import_text(text, named), "y"), "float32[7, 4]");
  ImportOptions shaped;
  shaped.input_shapes["x"] = {2, -1};
  shaped.input_shapes["z"] = {9};
  EXPECT_EQ(shape_of(import_text(text, shaped), "y"), "float32[2, 4]");
  EXPECT_EQ(shape_of(import_text(text, shaped), "z"), "float32[9]");
  ImportOptions dynamic;
  dynamic.all_dims_dynamic = true;
  EXPECT_EQ(shape_of(import_text(text, dynamic), "y"), "float32[N, x_dim1]");
  ImportOptions not_inlined;
  not_inlined.inline_functions = false;
  Graph g = import_proto(parse_text(kFunctions), not_inlined);
  EXPECT_EQ(g.nodes[0].domain, "local");
}

TEST(Import, StaleDeclarationsAreOverruled) {
  auto model =
      parse_graph("g (float[N, 4] x) => (float[1, 4] y) <float[1, 4] t> { t = Relu(x)  y = Neg(t) }");
  Graph g = import_proto(model);
  EXPECT_EQ(shape_of(g, "t"), "float32[N, 4]");
  EXPECT_EQ(shape_of(g, "y"), "float32[N, 4]");
}

TEST(Import, OperatorsOfUnknownDomainsKeepTheirDeclaredTypes) {
  auto model = parse_text(R"(<ir_version: 10, opset_import: ["": 21, "com.acme": 3]>
    g (float[2] x) => (float[2] y) <float[5] t> { t = com.acme.Magic<k = 3>(x)  u = com.acme.Magic(t)  y = Relu(u) })");
  Graph g = import_proto(model);
  EXPECT_EQ(shape_of(g, "t"), "float32[5]");
  EXPECT_EQ(g.at(find_value(g, "u")).type.kind, ValueType::unknown);
  EXPECT_EQ(shape_of(g, "y"), "float32[2]");
  EXPECT_EQ(g.nodes[0].opset, 3);
}

TEST(Import, NamesOfAModelAreEscapedInDumps) {
  auto model = parse_graph("g (float[2] x) => (float[2] y) { y = Relu(x) }");
  model.mutable_graph()->mutable_node(0)->set_name("*/\n#include \"/etc/passwd\"'");
  std::string text = to_string(import_proto(model));
  EXPECT_THAT(text, HasSubstr(R"('*/\x0a#include "/etc/passwd"\'')"));
}

TEST(FunctionBody, StaticAndContextDependent) {
  Graph g = import_text("g (float[2, 3] x, float[3] s) => (float[2, 3] y, float[2, 3] z) "
                        "{ y = Softmax<axis = 1>(x)  z = LayerNormalization(x, s) }");
  auto softmax = expand_function(g, g.nodes[0]);
  ASSERT_TRUE(softmax);
  EXPECT_EQ(softmax->inputs.size(), 1u);
  EXPECT_EQ(softmax->at(softmax->outputs[0]).producer, static_cast<int>(softmax->nodes.size()) - 1);
  auto norm = expand_function(g, g.nodes[1]);
  ASSERT_TRUE(norm);
  EXPECT_EQ(norm->inputs.size(), 2u);
  EXPECT_EQ(norm->outputs.size(), 1u);
  EXPECT_EQ(norm->context, g.context);
  g = import_text("g (float[2] x) => (float[2] y) { y = Exp(x) }");
  EXPECT_FALSE(expand_function(g, g.nodes[0]));
}

TEST(FunctionBody, BodiesKeepTheVersionTheyWereWrittenFor) {
  // This body was written for version 13, where ReduceSum had changed but ReduceMean had not.
  Graph g =
      import_text(R"(g (float[3, 5] x, int64[3] t) => (float y) { y = NegativeLogLikelihoodLoss(x, t) })");
  auto body = expand_function(g, g.nodes[0]);
  ASSERT_TRUE(body);
  for (const Node& node : body->nodes) EXPECT_LE(node.opset, 21) << node.op_type;
  EXPECT_EQ(schema_since_version("", "Softmax", 12), 11);
  EXPECT_EQ(schema_since_version("ai.onnx", "Softmax", 21), 13);
  EXPECT_EQ(schema_since_version("", "NoSuchOperator", 21), std::nullopt);
}

TEST(Schemas, AreThoseOfTheRegistryOfOnnx) {
  const int newest = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second;
  std::set<std::pair<std::string, std::string>> operators;
  size_t forms = 0;
  for (const onnx::OpSchema& theirs : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    const std::string &domain = theirs.domain(), &op = theirs.Name();
    SCOPED_TRACE(domain + "." + op + " " + std::to_string(theirs.since_version()));
    operators.emplace(domain, op);
    ++forms;
    const onnx::OpSchema* ours = importer::find_onnx_schema(domain, op, theirs.since_version());
    ASSERT_TRUE(ours);
    EXPECT_EQ(ours->since_version(), theirs.since_version());
    EXPECT_EQ(ours->domain(), domain);
    EXPECT_EQ(ours->Name(), op);
    EXPECT_EQ(ours->deprecated(), theirs.deprecated());
    EXPECT_EQ(ours->min_input(), theirs.min_input());
    EXPECT_EQ(ours->max_input(), theirs.max_input());
    EXPECT_EQ(ours->min_output(), theirs.min_output());
    EXPECT_EQ(ours->max_output(), theirs.max_output());
    EXPECT_EQ(ours->attributes().size(), theirs.attributes().size());
    EXPECT_EQ(ours->HasFunction(), theirs.HasFunction());
    EXPECT_EQ(ours->function_opset_versions(), theirs.function_opset_versions());
    EXPECT_EQ(ours->context_dependent_function_opset_versions(),
              theirs.context_dependent_function_opset_versions());
    EXPECT_EQ(ours, importer::find_onnx_schema(domain, op, theirs.since_version())); // made once
  }
  EXPECT_GT(forms, 600u);
  for (const auto& [domain, op] : operators) {
    for (int version = 0; version <= newest + 1; ++version) {
      const onnx::OpSchema *theirs = onnx::OpSchemaRegistry::Schema(op, version, domain),
                           *ours = importer::find_onnx_schema(domain, op, version);
      ASSERT_EQ(ours != nullptr, theirs != nullptr) << domain << "." << op << " " << version;
      if (ours) {
        EXPECT_EQ(ours->since_version(), theirs->since_version()) << op << " " << version;
      }
    }
    EXPECT_EQ(importer::find_onnx_schema(domain, op)->since_version(),
              onnx::OpSchemaRegistry::Schema(op, domain)->since_version());
  }
  EXPECT_FALSE(importer::find_onnx_schema("", "NoSuchOperator"));
  EXPECT_FALSE(importer::find_onnx_schema("ai.onnx.ml", "Relu"));
  EXPECT_FALSE(importer::find_onnx_schema("com.microsoft", "Relu"));
}

/// What another runtime would read: ONNX's checker must be content with it.
Graph import_again(const Graph& g) {
  std::string bytes = export_bytes(g);
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) throw std::runtime_error("export is no protobuf");
  onnx::checker::check_model(model, /*full_check=*/true);
  return import_bytes(bytes);
}

TEST(Export, RoundTrip) {
  for (
      const char* text : {
          "g (float[N, 3] x) => (float[N, 3] y) <float[3] w = {1, 2, 3}> { t = Add(x, w)  y = Relu(t) }",
          R"(g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
               d = Neg(x)
               y = If<then_branch = t () => (float[2] a) { a = Add(d, w) },
                      else_branch = e () => (float[2] b) { k = Constant<value_float = 3.0>()  b = Mul(x, k) }>(c) })",
          R"(g (seq(float[2]) x) => (int64 y, float[4] z) { y = SequenceLength(x)  z = ConcatFromSequence<axis = 0>(x) })",
          R"(g () => (string[2] s) { s = Constant<value_strings = ["a", "b"]>() })",
      }) {
    Graph g = import_text(text);
    EXPECT_EQ(to_string(import_again(g)), to_string(import_again(import_again(g)))) << text;
    EXPECT_EQ(import_again(g).nodes.size(), g.nodes.size());
  }
}

TEST(Export, AwkwardOutputs) {
  // One value under two output names, an output that is an input, a branch that returns an outer value.
  Graph g =
      import_text("g (bool c, float[2] x) => (float[2] y, float[2] x) { y = If<"
                  "then_branch = t () => (x) { }, else_branch = e () => (float[2] b) { b = Neg(x) }>(c) }");
  g.outputs.push_back(g.outputs[0]);
  Graph again = import_again(g);
  ASSERT_EQ(again.outputs.size(), 3u);
  EXPECT_EQ(again.at(again.outputs[0]).name, "y");
  EXPECT_EQ(again.at(again.outputs[1]).name, "x");
}

TEST(Export, OneOperatorSetForAll) {
  Graph g = import_proto(parse_text(kFunctions));
  EXPECT_EQ(import_again(g).opset_imports.at(""), 6);
  g.nodes[0].opset = 16;
  EXPECT_THROW(export_bytes(g), Error);
}

TEST(Export, LargeConstantsGoIntoASecondFile) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(::testing::TempDir()) / fmt::format("tbx_export_{}", ::getpid());
  fs::create_directories(folder);
  Graph g = import_text("g (float[3] x) => (float[3] y) <float[3] \"../w\" = {1, 2, 3}, float[1] s = {4}> "
                        "{ t = Add(x, \"../w\")  y = Add(t, s) }");
  export_model(g, folder / "m.onnx", {.max_inline_bytes = 0, .external_from = 8});
  EXPECT_EQ(fs::file_size(folder / "m.onnx.data"), 12u);
  Graph again = import_model(folder / "m.onnx");
  EXPECT_THAT(elements<float>(constant(again, "../w")), ElementsAre(1, 2, 3));
  export_model(again, folder / "m.onnx", {.max_inline_bytes = 0, .external_from = 8}); // over its own files
  EXPECT_THAT(elements<float>(constant(again, "../w")), ElementsAre(1, 2, 3));
  EXPECT_THAT(elements<float>(constant(import_model(folder / "m.onnx"), "../w")), ElementsAre(1, 2, 3));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
  EXPECT_THROW(export_model(g, folder / "no/such/folder/m.onnx"), Error);
  fs::remove_all(folder);
}

/// Every model of the zoo imports; its weights, which the repository does not hold, stand in as zeros.
TEST(Import, Zoo) {
  namespace fs = std::filesystem;
  fs::path root = fs::path(test::source_dir()) / "models" / "zoo";
  fs::path folder = fs::path(::testing::TempDir()) / ("tbx_zoo_" + std::to_string(::getpid()));
  int count = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "model.onnx")) continue;
    fs::create_directories(folder);
    fs::copy_file(entry.path() / "model.onnx", folder / "model.onnx", fs::copy_options::overwrite_existing);
    std::ofstream(folder / "weights.bin").close();
    fs::resize_file(folder / "weights.bin", uintmax_t{1} << 31);
    try {
      Graph g = import_model(folder / "model.onnx");
      EXPECT_FALSE(g.nodes.empty());
      for (ValueId id : g.outputs) EXPECT_NE(g.at(id).type.kind, ValueType::unknown) << entry.path();
      ++count;
    } catch (const Error& e) {
      ADD_FAILURE() << entry.path() << ": " << e.what();
    }
  }
  fs::remove_all(folder);
  EXPECT_GE(count, 20);
}

} // namespace
} // namespace tbx
