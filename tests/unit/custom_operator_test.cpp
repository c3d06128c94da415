// Operators of shared libraries: loading, inference at import and in runs, states, threads, errors.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "../support/onnx_text.h"
#include "extern_kernels/custom_operator.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/places.h"

namespace tbx::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string library(const std::string& name) { return operators_dir() + "/" + name + ".so"; }

Result<Session> compile(const std::string& text,
                        std::vector<std::string> libraries = {library("test_operators")}, bool code = false) {
  CompileOptions options;
  options.compile = code;
  options.operator_libraries = std::move(libraries);
  std::string bytes = to_bytes(parse_text("<ir_version: 10, opset_import: [\"\": 21, \"test.custom\": 4, "
                                          "\"example.signal\": 1]>\n" +
                                          text));
  return Session::compile(std::as_bytes(std::span(bytes)), options);
}

/// What is wrong with a model, or with its run on [1, 2, 3].
std::string error_of(const std::string& text,
                     std::vector<std::string> libraries = {library("test_operators")}) {
  auto session = compile(text, std::move(libraries));
  if (!session) return session.error().message;
  std::vector<float> x = {1, 2, 3};
  auto out = session.value().run({{"x", TensorView::of(x, {3})}});
  return out.ok() ? "" : out.error().message;
}

std::string wrong(const std::string& how, const std::string& shape = "[n]") {
  return error_of("g (float" + shape + " x) => (float" + shape + " y) { [bad] y = test.custom.Wrong<how=\"" +
                  how + "\">(x) }");
}

std::vector<float> floats(const OutputTensor& t) {
  return {t.values<float>().begin(), t.values<float>().end()};
}

TEST(CustomOperators, RunBetweenOtherNodes) {
  for (bool code : {false, true}) {
    Session session =
        compile("g (float[n] x) => (float[n] y) { a = Mul(x, x) b = test.custom.Copy(a) y = Add(b, x) }",
                {library("test_operators")}, code)
            .value();
    EXPECT_THAT(session.outputs()[0].dims, ElementsAre("n")); // what infer copied is the same size
    for (int64_t n : {3, 0, 1}) {
      std::vector<float> x(static_cast<size_t>(n) + 1, 2);
      auto out = session.run({{"x", TensorView::of(x, {n})}}).value();
      EXPECT_EQ(floats(out[0]), std::vector<float>(static_cast<size_t>(n), 6));
    }
  }
}

TEST(CustomOperators, TheExampleFiltersAndFindsPeaks) {
  Session session = compile(R"(g (float[c, n] x) => (float[c, m] y, int64[p] at) {
    taps = Constant<value_floats = [1.0, 2.0]>() bias = Constant<value_float = 1.0>()
    y = example.signal.FirFilter<gain = 2.0>(x, taps, bias)
    flat = Constant<value_ints = [-1]>() row = Reshape(x, flat)
    p = example.signal.Peaks(row) one = Constant<value_int = 1>() at = Add(p, one) })",
                            {library("signal_operators")})
                        .value();
  std::vector<float> x = {0, 3, 1, 2, 5, 4};
  auto out = session.run({{"x", TensorView::of(x, {2, 3})}}).value();
  EXPECT_EQ(out[0].dims, (std::vector<int64_t>{2, 2}));
  EXPECT_THAT(floats(out[0]), ElementsAre(14, 12, 26, 28));
  auto at = out[1].values<int64_t>();
  EXPECT_THAT(std::vector<int64_t>(at.begin(), at.end()), ElementsAre(2, 5));
}

TEST(CustomOperators, InputsMayBeLeftOutOrAnyNumber) {
  Session session = compile(R"(g (float[n] x) => (float[n] y, float[n] z) {
    y = test.custom.Sum<start = 10.0>(x, , x) z = test.custom.Sum(x, x, x, x) })")
                        .value();
  std::vector<float> x = {1, 2};
  auto out = session.run({{"x", TensorView::of(x, {2})}}).value();
  EXPECT_THAT(floats(out[0]), ElementsAre(12, 14));
  EXPECT_THAT(floats(out[1]), ElementsAre(4, 8));
}

TEST(CustomOperators, ShapesMayComeFromElements) {
  Session constant = compile(R"(g (float[6] x) => (float[a, b] y) {
    s = Constant<value_ints = [2, 3]>() y = test.custom.Shaped(x, s) })")
                         .value();
  EXPECT_THAT(constant.outputs()[0].dims, ElementsAre("2", "3"));
  Session session =
      compile("g (float[6] x, int64[2] s) => (float[a, b] y) { t = test.custom.Shaped(x, s) y = Add(t, t) }")
          .value();
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  for (auto sizes : {std::vector<int64_t>{2, 3}, std::vector<int64_t>{6, 1}}) {
    auto out = session.run({{"x", TensorView::of(x, {6})}, {"s", TensorView::of(sizes, {2})}}).value();
    EXPECT_EQ(out[0].dims, sizes);
    EXPECT_EQ(floats(out[0])[5], 12);
  }
}

TEST(CustomOperators, SizesThatOnlyTheDataTellsPassThroughOthers) {
  Session session = compile(R"(g (float[n] x) => (float[m] y) {
    p = example.signal.Peaks(x) f = Cast<to = 1>(p) c = test.custom.Copy(f) y = Add(c, f) })",
                            {library("signal_operators"), library("test_operators")})
                        .value();
  std::vector<float> x = {0, 1, 0, 1, 0};
  EXPECT_THAT(floats(session.run({{"x", TensorView::of(x, {5})}}).value()[0]), ElementsAre(2, 6));
  EXPECT_THAT(floats(session.run({{"x", TensorView::of(x, {2})}}).value()[0]), ElementsAre());
}

TEST(CustomOperators, SeeTheirNodeAndItsAttributes) {
  Session session = compile(R"(g () => (uint8[n] y) { [me] y = test.custom.Describe<a = 3, b = 1.5, c = "x",
    d = [1, 2], e = [0.5, 2.0], f = ["p", "q"], g = float {7.0}>() })")
                        .value();
  auto out = session.run({}).value();
  auto text = out[0].values<uint8_t>();
  EXPECT_EQ(std::string(text.begin(), text.end()),
            "me test.custom.Describe 4: a=3 b=1.5 c='x' d=1,2, e=0.5,2, f='p','q', g=7");
}

TEST(CustomOperators, WorkInBodies) {
  Session session = compile(R"(g (int64 n, float[k] x) => (float[k] y) {
    c = Constant<value = bool {1}>()
    y = Loop(n, c, x) <body = body(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {
      co = Identity(ci) so = test.custom.Sum(s, s) }> })")
                        .value();
  std::vector<float> x = {1, 2};
  std::vector<int64_t> n = {3};
  auto out = session.run({{"n", TensorView::of(n, {})}, {"x", TensorView::of(x, {2})}}).value();
  EXPECT_THAT(floats(out[0]), ElementsAre(8, 16));
}

TEST(CustomOperators, ComeBeforeFunctionsOfTheModel) {
  std::string text = R"(<ir_version: 10, opset_import: ["": 21, "test.custom": 4]>
    g (float[n] x) => (float[n] y) { y = test.custom.Copy(x) }
    <opset_import: ["": 21], domain: "test.custom"> Copy (x) => (y) { y = Add(x, x) })";
  std::string bytes = to_bytes(parse_text(text));
  std::vector<float> x = {1, 2};
  for (bool with_library : {false, true}) {
    CompileOptions options;
    options.compile = false;
    if (with_library) options.operator_libraries = {library("test_operators")};
    Session session = Session::compile(std::as_bytes(std::span(bytes)), options).value();
    auto out = session.run({{"x", TensorView::of(x, {2})}}).value();
    EXPECT_EQ(floats(out[0])[1], with_library ? 2 : 4);
  }
}

TEST(CustomOperators, ThatAreNoFunctionsStayApart) {
  Session session = compile("g (float[1] x) => (float[1] y, float[1] z) { y = test.custom.Count(x) "
                            "z = test.custom.Count(x) }")
                        .value();
  std::vector<float> x = {0};
  auto out = session.run({{"x", TensorView::of(x, {1})}}).value();
  EXPECT_NE(floats(out[0])[0], floats(out[1])[0]);
}

TEST(CustomOperators, StatesEndWithTheSession) {
  void* handle = dlopen(library("test_operators").c_str(), RTLD_NOW);
  auto* alive = reinterpret_cast<int (*)()>(dlsym(handle, "test_states_alive"));
  ASSERT_TRUE(alive);
  const int before = alive();
  {
    Session session = compile("g (float[n] x) => (float[n] y) { y = test.custom.Sum(x, x) }").value();
    EXPECT_GT(alive(), before);
  }
  EXPECT_EQ(alive(), before);
}

TEST(CustomOperators, RunInManyThreads) {
  Session session = compile("g (float[n] x) => (float[n] y) { t = Constant<value_floats = [1.0, 1.0]>() "
                            "s = test.custom.Sum<start = 1.0>(x, x) f = example.signal.FirFilter(s, t) "
                            "y = test.custom.Copy(f) }",
                            {library("test_operators"), library("signal_operators")})
                        .value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong_results{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> x(static_cast<size_t>(10 + t), static_cast<float>(t));
      for (int i = 0; i < 50; ++i) {
        auto out = session.run({{"x", TensorView::of(x, {10 + t})}}).value();
        if (floats(out[0]) != std::vector<float>(static_cast<size_t>(9 + t), static_cast<float>(4 * t + 2)))
          ++wrong_results;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong_results, 0);
}

const char* kCopy = "g (float[n] x) => (float[n] y) { [c] y = test.custom.Copy(x) }";

TEST(CustomOperatorErrors, Libraries) {
  EXPECT_THAT(error_of(kCopy, {"/nowhere/lib.so"}),
              AllOf(HasSubstr("BackendError"), HasSubstr("/nowhere/lib.so"), HasSubstr("No such file")));
  EXPECT_THAT(error_of(kCopy, {"libm.so.6"}),
              HasSubstr("cannot be opened")); // no search in the system's folders
  EXPECT_THAT(error_of(kCopy, {source_dir() + "/README.md"}), HasSubstr("cannot be loaded"));
  EXPECT_THAT(error_of(kCopy, {library("test_operators_no_entry")}),
              AllOf(HasSubstr("does not export tensorbox_register_operators"),
                    HasSubstr("ONNX Runtime's interface")));
  EXPECT_THAT(error_of(kCopy, {library("test_operators_wrong_abi")}),
              AllOf(HasSubstr("built for version 2"), HasSubstr("wrong_abi.so")));
  EXPECT_THAT(error_of(kCopy, {library("test_operators_duplicate")}),
              HasSubstr("test.custom.Copy of version 1 is registered twice"));
  EXPECT_THAT(error_of(kCopy, {library("test_operators"), library("test_operators_twin")}),
              AllOf(HasSubstr("test.custom.Copy"), HasSubstr("test_operators.so"),
                    HasSubstr("test_operators_twin.so")));
  EXPECT_THAT(error_of(kCopy, {library("test_operators_taken_domain")}),
              HasSubstr("'ai.onnx.ml', which is taken"));
  EXPECT_THAT(error_of(kCopy, {library("test_operators_refuses")}),
              HasSubstr("tensorbox of today is not for us"));
  EXPECT_THAT(error_of(kCopy, {library("test_operators_empty")}), HasSubstr("registers no operator"));
  EXPECT_EQ(error_of(kCopy, {library("test_operators"), library("test_operators")}), "");
}

TEST(CustomOperatorErrors, WithoutTheLibraryTheHintNamesTheOption) {
  EXPECT_THAT(error_of(kCopy, {}), AllOf(HasSubstr("UnsupportedError"), HasSubstr("test.custom.Copy"),
                                         HasSubstr("operator_libraries")));
}

TEST(CustomOperatorErrors, Models) {
  auto of = [](const std::string& node) {
    return error_of("g (float[n] x) => (float[n] y) { [bad] y = test.custom." + node + " }");
  };
  EXPECT_THAT(of("Copy(x, x)"), AllOf(HasSubstr("ModelError"), HasSubstr("takes 1 inputs, the node has 2"),
                                      HasSubstr("bad"), HasSubstr("test_operators.so")));
  EXPECT_THAT(of("Sum(x)"), HasSubstr("takes 2 or more inputs, the node has 1"));
  EXPECT_THAT(of("Sum( , x)"), HasSubstr("input 0 is left out"));
  EXPECT_THAT(error_of("g (string[n] x) => (string[n] y) { y = test.custom.Copy(x) }"),
              AllOf(HasSubstr("UnsupportedError"), HasSubstr("no tensor of real numbers")));
  EXPECT_THAT(error_of("g (float[n] x) => (float[n] y, float[n] z) { y, z = test.custom.Copy(x) }"),
              HasSubstr("gives 1 outputs, the node wants 2"));
}

TEST(CustomOperatorErrors, Callbacks) {
  EXPECT_THAT(wrong("infer"),
              AllOf(HasSubstr("ModelError"), HasSubstr("node 'bad' (test.custom.Wrong, opset 4)"),
                    HasSubstr("custom operator test.custom.Wrong"), HasSubstr("how is 'infer'")));
  EXPECT_THAT(wrong("unsupported"), AllOf(HasSubstr("UnsupportedError"), HasSubstr("not this way")));
  EXPECT_THAT(wrong("silent"), AllOf(HasSubstr("BackendError"), HasSubstr("infer failed")));
  EXPECT_THAT(wrong("compute"), AllOf(HasSubstr("ModelError"), HasSubstr("node 'bad' (Wrong)"),
                                      HasSubstr("the computation fails")));
  EXPECT_THAT(wrong("dtype"), HasSubstr("infer gives output 0 the element type 99"));
  EXPECT_THAT(wrong("string"), HasSubstr("infer gives output 0 the element type 8"));
  EXPECT_THAT(wrong("rank"), HasSubstr("infer gives output 0 the rank 65"));
  EXPECT_THAT(wrong("other dtype"),
              AllOf(HasSubstr("BackendError"), HasSubstr("the type int32, and gave float32 before")));
  for (const char* shape : {"[n]", "[3]"})
    EXPECT_THAT(wrong("other size", shape),
                HasSubstr("has the shape [4], which is not what infer gave before"));
  EXPECT_THAT(wrong("huge"), HasSubstr("is too large"));
  EXPECT_THAT(wrong("allocate"), HasSubstr("compute does not allocate output 0"));
  EXPECT_THAT(wrong("allocate negative"), HasSubstr("allocates output 0 with [-5]"));
  EXPECT_THAT(wrong("allocate rank"), HasSubstr("with rank 2, inferred was 1"));
  EXPECT_THAT(wrong("allocate other"), HasSubstr("allocates output 7 of 1"));
  // Sizes calculated from unknown ones are unknown, and right in the run.
  EXPECT_EQ(wrong("calculates"), "");
}

} // namespace
} // namespace tbx::test
