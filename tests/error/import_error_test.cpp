// Bad and hostile models: each must end in a ModelError (or UnsupportedError) that names the culprit, never
// in a crash, a hang or an InternalError.
#include <gmock/gmock.h>

#include <functional>

#include "base/error.h"
#include "tests/support/onnx_text.h"

namespace tbx {
namespace {

using namespace test;
using ::testing::HasSubstr;

/// Runs `import` and gives the error it must end in.
std::string error_of(const std::function<void()>& import, ErrorKind kind = ErrorKind::model) {
  try {
    import();
  } catch (const Error& e) {
    EXPECT_STREQ(name_of(e.kind()), name_of(kind)) << e.what();
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not an Error of ours: " << e.what();
    return e.what();
  }
  ADD_FAILURE() << "imported without error";
  return "";
}

std::string error_of_graph(const std::string& text, const ImportOptions& options = {}) {
  return error_of([&] { import_text(text, options); });
}

std::string error_of_model(const onnx::ModelProto& model, const ImportOptions& options = {},
                           ErrorKind kind = ErrorKind::model) {
  return error_of([&] { import_proto(model, options); }, kind);
}

onnx::TensorProto* add_initializer(onnx::ModelProto& model, int type, std::vector<int64_t> dims) {
  auto* t = model.mutable_graph()->add_initializer();
  t->set_name("w");
  t->set_data_type(type);
  for (int64_t d : dims) t->add_dims(d);
  return t;
}

constexpr int kFloat = onnx::TensorProto::FLOAT;
const char* const kRelu = "g (float[2] x) => (float[2] y) { y = Relu(x) }";

// Dimensions that overflow, are negative or too many.

TEST(BadTensors, Dimensions) {
  auto error = [](std::vector<int64_t> dims) {
    auto model = parse_graph(kRelu);
    add_initializer(model, kFloat, std::move(dims));
    return error_of_model(model);
  };
  EXPECT_THAT(error({-1}), HasSubstr("tensor 'w' has the negative dimension -1"));
  EXPECT_THAT(error({int64_t{1} << 62, 4}), HasSubstr("tensor 'w'"));
  EXPECT_THAT(error({int64_t{1} << 62}), HasSubstr("overflows"));
  EXPECT_THAT(error({int64_t{1} << 41}), HasSubstr("over the limit"));
  EXPECT_THAT(error(std::vector<int64_t>(1000, 1)), HasSubstr("rank 1000"));
  EXPECT_THAT(error({1 << 20, 1 << 10}), HasSubstr("has 0 entries in float_data"));
}

TEST(BadTensors, Sparse) {
  auto model = parse_graph(kRelu);
  auto* s = model.mutable_graph()->add_sparse_initializer();
  s->add_dims(int64_t{1} << 36);
  s->mutable_values()->set_name("w");
  s->mutable_values()->set_data_type(kFloat);
  s->mutable_values()->add_dims(1);
  s->mutable_values()->add_float_data(1);
  auto* i = s->mutable_indices();
  i->set_data_type(onnx::TensorProto::INT64);
  i->add_dims(1);
  i->add_int64_data(5);
  EXPECT_THAT(error_of_model(model), HasSubstr("too large to be made dense"));
  s->set_dims(0, 4);
  EXPECT_THAT(error_of_model(model), HasSubstr("index 5 is outside [0, 4)"));
  i->set_int64_data(0, -1);
  EXPECT_THAT(error_of_model(model), HasSubstr("index -1 is outside"));
  i->add_dims(2);
  EXPECT_THAT(error_of_model(model), HasSubstr("indices"));
}

TEST(BadTensors, ManySparseTensors) {
  auto model = parse_graph(kRelu);
  for (int i = 0; i < 9; ++i) {
    auto* s = model.mutable_graph()->add_sparse_initializer();
    s->add_dims(int64_t{1} << 17); // half a MiB
    s->mutable_values()->set_name(fmt::format("w{}", i));
    s->mutable_values()->set_data_type(kFloat);
    s->mutable_values()->add_dims(0);
  }
  ImportOptions options;
  options.max_dense_bytes = 4 << 20;
  EXPECT_THAT(error_of_model(model, options),
              HasSubstr("sparse tensor 'w8' of shape [131072] is too large to be made dense"));
}

// Data that does not fit type and shape.

TEST(BadTensors, DataOfAnotherSize) {
  auto error = [](int type, const std::function<void(onnx::TensorProto&)>& fill) {
    auto model = parse_graph(kRelu);
    fill(*add_initializer(model, type, {3}));
    return error_of_model(model);
  };
  auto raw = [](std::string bytes) { return [bytes](onnx::TensorProto& t) { t.set_raw_data(bytes); }; };
  EXPECT_THAT(error(kFloat, raw(std::string(11, 'x'))), HasSubstr("has 11 bytes of raw data, expected 12"));
  EXPECT_THAT(error(kFloat, raw(std::string(13, 'x'))), HasSubstr("expected 12"));
  EXPECT_THAT(error(onnx::TensorProto::INT4, raw("xyz")), HasSubstr("has 3 bytes of raw data, expected 2"));
  EXPECT_THAT(error(onnx::TensorProto::UINT2, raw("xy")), HasSubstr("expected 1"));
  EXPECT_THAT(error(kFloat, [](auto& t) { t.add_float_data(1); }),
              HasSubstr("has 1 entries in float_data, expected 3"));
  EXPECT_THAT(error(kFloat, [](auto& t) { t.add_int32_data(1); }),
              HasSubstr("data in another field than float_data"));
  EXPECT_THAT(error(onnx::TensorProto::STRING, raw("abc")), HasSubstr("strings cannot be raw data"));
  EXPECT_THAT(error(onnx::TensorProto::COMPLEX64, [](auto& t) { t.add_float_data(1); }),
              HasSubstr("expected 6"));
  EXPECT_THAT(error(0, raw("abc")), HasSubstr("0 is not an element type"));
  EXPECT_THAT(error(99, raw("abc")), HasSubstr("99 is not an element type"));
  EXPECT_THAT(error(kFloat, [](auto& t) { t.mutable_segment()->set_begin(0); }), HasSubstr("segments"));
}

// Structure: names, arity, attributes, subgraphs, versions.

TEST(BadGraphs, Names) {
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Relu(nowhere) }"),
              HasSubstr("node 'y' (Relu, opset 21): input 'nowhere' does not exist"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Relu(x)  y = Neg(x) }"),
              HasSubstr("the name 'y' is given to two values"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { x = Relu(x)  y = Neg(x) }"),
              HasSubstr("circle"));
  EXPECT_THAT(error_of_graph("g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }"),
              HasSubstr("input 'x' is declared twice"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] z) { y = Relu(x) }"),
              HasSubstr("no node makes the output 'z'"));
  EXPECT_THAT(
      error_of_graph("g (float[2] x) => (float[2] y) { a = Neg(c)  b = Neg(a)  c = Neg(b)  y = Neg(c) }"),
      HasSubstr("in a circle: 'b' -> 'c' -> 'a' -> 'b'"));
  auto model = parse_graph(kRelu);
  add_initializer(model, kFloat, {0});
  add_initializer(model, kFloat, {0});
  EXPECT_THAT(error_of_model(model), HasSubstr("the name 'w' is given to two values"));
  model = parse_graph(kRelu);
  model.mutable_graph()->mutable_input(0)->clear_type();
  EXPECT_THAT(error_of_model(model), HasSubstr("input 'x' has no type"));
}

TEST(BadGraphs, Operators) {
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Relu(x, x) }"), HasSubstr("input size 2"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Add(x) }"), HasSubstr("input size 1"));
  auto left_out = parse_graph("g (float[2] x) => (float[2] y) { y = Add(x, x) }");
  left_out.mutable_graph()->mutable_node(0)->set_input(1, "");
  EXPECT_THAT(error_of_model(left_out), HasSubstr("empty string"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Relu<alpha = 1.0>(x) }"),
              HasSubstr("Unrecognized attribute"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Cast<to = \"f\">(x) }"),
              HasSubstr("Mismatched attribute type"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Cast(x) }"), HasSubstr("'to' is missing"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = Frobnicate(x) }"),
              HasSubstr("there is no operator 'Frobnicate' in ai.onnx"));
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) { y = com.acme.F(x) }"),
              HasSubstr("imports no version of the operator set 'com.acme'"));
  EXPECT_THAT(error_of_graph("g (float[2] x, int64[2] i) => (float[2] y) { y = Add(x, i) }"),
              HasSubstr("type"));
  EXPECT_THAT(error_of_graph("g (float[2, 3] x) => (float[2, 3] y) { y = MatMul(x, x) }"),
              HasSubstr("node 'y' (MatMul, opset 21): Incompatible dimensions"));
  EXPECT_THAT(
      error_of_graph("g (float[2] x) => (int64[2] y) { y = Relu(x) }"),
      HasSubstr(
          "node 'y' (Relu, opset 21): output 'y' is declared as tensor(int64), but it is tensor(float)"));
  auto old =
      parse_text("<ir_version: 8, opset_import: [\"\": 11]> g (float[2] x) => (float[2] y) { y = Gelu(x) }");
  EXPECT_THAT(error_of_model(old),
              HasSubstr("not in version 11 of ai.onnx; its newest form is of version 20"));
}

// Numbers and strings on which ONNX's own inference hangs, writes out of bounds or allocates without end.

TEST(BadGraphs, HostileAttributes) {
  EXPECT_THAT(error_of_graph("g (float[2, 2] x) => (y) { y = Einsum<equation = \"i;i->i\">(x) }"),
              HasSubstr("'i;i->i' is not an Einsum equation"));
  EXPECT_THAT(error_of_graph("g (float[2, 2] x) => (y) { y = Einsum<equation = \"......i\">(x) }"),
              HasSubstr("not an Einsum equation"));
  EXPECT_THAT(error_of_graph("g (float[2, 2] x, float[2] s) => (y, m) "
                             "{ y, b, m = LayerNormalization<axis = 4294967291>(x, s) }"),
              HasSubstr("attribute 'axis' holds a number that no axis has"));
  EXPECT_THAT(
      error_of_graph("g (float[2, 2] x, int64[2, 1] i) => (y) { y = GatherND<batch_dims = -5>(x, i) }"),
      HasSubstr("batch_dims is -5"));
  EXPECT_THAT(error_of_graph("g (float[8] x) => (y) { y = Split<num_outputs = 4294967296>(x) }"),
              HasSubstr("num_outputs is 4294967296, but the node has 1 outputs"));
  EXPECT_THAT(error_of_graph("g (float[2] x, int64[1000000000000] s) => (y) { y = Expand(x, s) }"),
              HasSubstr("rank 1000000000000"));
}

TEST(BadGraphs, Subgraphs) {
  EXPECT_THAT(error_of_graph("g (float[2] x) => (float[2] y) "
                             "{ y = Relu<body = b () => (float[2] z) { z = Neg(x) }>(x) }"),
              HasSubstr("Unrecognized attribute"));
  EXPECT_THAT(
      error_of_graph("g (bool c, float[2] x) => (float[2] y) { y = If<"
                     "then_branch = t () => (float[2] a) { a = Neg(later) },"
                     "else_branch = e () => (float[2] b) { b = Neg(x) }>(c) }"),
      HasSubstr("node 'a' (Neg, opset 21), in node 'y' (If, opset 21): input 'later' does not exist"));
  EXPECT_THAT(
      error_of_graph("g (bool c, float[2] x) => (float[2] y) { y = If<"
                     "then_branch = t () => (float[2] a) { a = Neg(x) },"
                     "else_branch = e () => (float[2] b, float[2] d) { b = Neg(x)  d = Neg(x) }>(c) }"),
      HasSubstr("number of outputs"));
  EXPECT_THAT(error_of_graph("g (int64 m, bool c, float[2] x) => (float[2] y) { y = Loop<"
                             "body = b (int64 i) => (bool k) { k = Identity(c) }>(m, c, x) }"),
              HasSubstr("has 1 inputs, but its operator gives 3"));
  auto model = parse_graph("g (int64 m, bool c, float[2] x) => (float[2] y) { y = Loop<"
                           "body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] s2) "
                           "{ k2 = Identity(k)  s2 = Neg(s) }>(m, c, x) }");
  auto* init = model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g()->add_initializer();
  init->set_name("s");
  init->set_data_type(kFloat);
  init->add_dims(0);
  EXPECT_THAT(error_of_model(model), HasSubstr("subgraph input 's' is also an initializer"));
}

TEST(BadModels, Versions) {
  auto model = parse_graph(kRelu);
  model.set_ir_version(99);
  EXPECT_THAT(error_of_model(model, {}, ErrorKind::unsupported), HasSubstr("IR version 99"));
  model.clear_ir_version();
  EXPECT_THAT(error_of_model(model), HasSubstr("no IR version"));
  model = parse_graph(kRelu);
  model.mutable_opset_import(0)->set_version(999);
  EXPECT_THAT(error_of_model(model, {}, ErrorKind::unsupported), HasSubstr("version 999"));
  model.mutable_opset_import(0)->set_version(-3);
  EXPECT_THAT(error_of_model(model), HasSubstr("version -3"));
  model.clear_opset_import();
  EXPECT_THAT(error_of_model(model), HasSubstr("imports no operator set"));
  model = parse_graph(kRelu);
  model.clear_graph();
  EXPECT_THAT(error_of_model(model), HasSubstr("no graph"));
}

// Functions that never end or grow without bound.

/// f0 calls f1 `calls_each` times, f1 calls f2, and so on.
std::string function_chain(int length, int calls_each) {
  std::string text = R"(<ir_version: 10, opset_import: ["": 21, "local": 1]>
    g (float[2] x) => (float[2] y) { y = local.f0(x) })";
  for (int i = 0; i < length; ++i) {
    text += fmt::format("<domain: \"local\", opset_import: [\"\": 21, \"local\": 1]> f{} (v0) => (v{}) {{", i,
                        calls_each);
    for (int c = 0; c < calls_each; ++c)
      text += i + 1 < length ? fmt::format(" v{} = local.f{}(v{})", c + 1, i + 1, c)
                             : fmt::format(" v{} = Neg(v{})", c + 1, c);
    text += " }\n";
  }
  return text;
}

TEST(BadFunctions, Recursion) {
  auto error = [](const std::string& functions) {
    return error_of_model(parse_text(R"(<ir_version: 10, opset_import: ["": 21, "local": 1]>
      g (float[2] x) => (float[2] y) { y = local.f(x) })" +
                                     functions));
  };
  EXPECT_THAT(error(R"(<domain: "local", opset_import: ["local": 1]> f (a) => (b) { b = local.f(a) })"),
              HasSubstr("functions call themselves, which ONNX forbids: 'local:f' -> 'local:f'"));
  EXPECT_THAT(error(R"(
      <domain: "local", opset_import: ["local": 1]> f (a) => (b) { b = local.g(a) }
      <domain: "local", opset_import: ["": 21, "local": 1]> g (a) => (b) {
         c = Constant<value_int = 1>()
         b = If<then_branch = t () => (d) { d = local.f(a) }, else_branch = e () => (h) { h = Neg(a) }>(c) })"),
              HasSubstr("functions call themselves"));
}

TEST(BadFunctions, Bombs) {
  EXPECT_THAT(error_of_model(parse_text(function_chain(30, 4))), HasSubstr("expand to"));
  EXPECT_THAT(error_of_model(parse_text(function_chain(60, 9))),
              HasSubstr("more than 2^63 nodes, over the limit"));
  EXPECT_THAT(error_of_model(parse_text(function_chain(200, 1))),
              HasSubstr("levels deep, over the limit of 64"));
  ImportOptions small;
  small.max_nodes = 100;
  EXPECT_THAT(error_of_model(parse_text(function_chain(4, 4)), small), HasSubstr("over the limit of 100"));
}

TEST(BadFunctions, Calls) {
  auto error = [](const std::string& call, const std::string& functions) {
    return error_of_model(parse_text(R"(<ir_version: 10, opset_import: ["": 21, "local": 1]>
      g (float[2] x) => (float[2] y) { )" +
                                     call + "}" + functions));
  };
  const std::string f = R"(<domain: "local", opset_import: ["": 21]> f (a) => (b) { b = Neg(a) })";
  EXPECT_THAT(error("y = local.f(x, x)", f), HasSubstr("has 1 inputs, the call gives 2"));
  EXPECT_THAT(error("y, z = local.f(x)", f), HasSubstr("has 1 outputs, the call wants 2"));
  EXPECT_THAT(error("y = local.f(x)", f + f), HasSubstr("is defined twice"));
  EXPECT_THAT(
      error("y = local.f(x)", R"(<domain: "local", opset_import: ["": 21]> f (a) => (b) { c = Neg(a) })"),
      HasSubstr("makes its output 'b'"));
  EXPECT_THAT(
      error("y = local.f(x)", R"(<domain: "local", opset_import: ["": 21]> f (a) => (b) { b = Neg(x) })"),
      HasSubstr("node 'y/b' (Neg, opset 21), in node 'y' (local.f, opset 1): input 'x' does not exist"));
}

// Bytes that are no model, or a bomb.

TEST(BadBytes, NotAModel) {
  auto error = [](const std::string& bytes) { return error_of([&] { import_bytes(bytes); }); };
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("a Git LFS pointer, not the model (`git lfs pull`"));
  EXPECT_THAT(error("PK\x03\x04 and so on"), HasSubstr("a zip archive"));
  EXPECT_THAT(error(std::string("\x18\0\0\0ORTM\0\0", 10)), HasSubstr("ONNX Runtime's own format"));
  EXPECT_THAT(error(std::string("\x08\x07\x12\x0aORTM-maker", 14)), HasSubstr("the model has no graph"));
  EXPECT_THAT(error(std::string(64, '\xff')), HasSubstr("more than ten bytes"));
  EXPECT_THAT(error(std::string("\x3a\xff\xff\xff\xff\x0f", 6)), HasSubstr("past the end"));
}

/// A model with most of what the importer looks at.
std::string rich_model() {
  return to_bytes(parse_text(R"(<ir_version: 10, opset_import: ["": 21, "local": 1]>
    g (bool c, float[N, 3] x) => (float[N, 3] y) <float[3] w = {1, 2, 3}> {
      s = local.f<k = 1>(x)  d = Add(s, w)
      y = If<then_branch = t () => (float[N, 3] a) { a = Neg(d) }, else_branch = e () => (b) { b = Relu(x) }>(c) }
    <domain: "local", opset_import: ["": 21]> f <k> (a) => (b) { q = Softmax<axis: int = @k>(a)  b = Neg(q) })"));
}

void import_or_fail_cleanly(const std::string& bytes, const std::string& what) {
  try {
    import_bytes(bytes);
  } catch (const Error& e) {
    EXPECT_NE(e.kind(), ErrorKind::internal) << what << ": " << e.what();
  }
}

TEST(BadBytes, CutAnywhere) {
  const std::string good = rich_model();
  ASSERT_NO_THROW(import_bytes(good));
  for (size_t size = 0; size < good.size(); ++size)
    import_or_fail_cleanly(good.substr(0, size), fmt::format("{} bytes", size));
}

TEST(BadBytes, AnyBitChanged) {
  const std::string good = rich_model();
  for (size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      import_or_fail_cleanly(bad, fmt::format("bit {} of byte {}", bit, i));
    }
}

TEST(BadBytes, DeepNesting) {
  onnx::ModelProto model = parse_graph("g (bool c, float[2] x) => (float[2] y) { y = Relu(x) }");
  for (int depth = 0; depth < 90; ++depth) {
    auto outer = parse_graph("g (bool c, float[2] x) => (float[2] y) { y = If(c) }");
    auto add_branch = [&](const char* name, const onnx::GraphProto& graph) {
      auto* a = outer.mutable_graph()->mutable_node(0)->add_attribute();
      a->set_name(name);
      a->set_type(onnx::AttributeProto::GRAPH);
      *a->mutable_g() = graph;
    };
    model.mutable_graph()->clear_input();
    add_branch("then_branch", model.graph());
    add_branch("else_branch", parse_graph("e () => (float[2] z) { z = Neg(x) }").graph());
    model = outer;
  }
  EXPECT_THAT(error_of_model(model), HasSubstr("levels of nested graphs"));
  ImportOptions deep;
  deep.max_nesting = 100;
  EXPECT_NO_THROW(import_proto(model, deep));

  model = parse_graph(kRelu);
  auto* type = model.mutable_graph()->mutable_input(0)->mutable_type();
  for (int depth = 0; depth < 5000; ++depth) type = type->mutable_sequence_type()->mutable_elem_type();
  type->mutable_tensor_type()->set_elem_type(kFloat);
  EXPECT_THAT(error_of_model(model), HasSubstr("nested"));
}

TEST(BadBytes, HugeNumbersOfParts) {
  std::string nodes; // empty ones, of two bytes each in the file
  for (int i = 0; i < 3'000'000; ++i) nodes += std::string("\x0a\x00", 2);
  std::string model = "\x08\x08\x3a";
  for (size_t size = nodes.size(); size > 0; size >>= 7)
    model += static_cast<char>((size & 127) | (size > 127 ? 128 : 0));
  EXPECT_THAT(error_of([&] { import_bytes(model + nodes); }), HasSubstr("more than 2000000 nodes"));
}

} // namespace
} // namespace tbx
