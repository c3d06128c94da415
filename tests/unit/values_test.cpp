// Models with strings, sequences, optionals and bodies that run: values, errors, threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "../support/onnx_text.h"
#include "base/value.h"
#include "driver/value_compile.h"
#include "runtime/value_op.h"
#include "runtime/value_session.h"
#include "tensorbox/tensorbox.h"

namespace tbx::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

Session compile_text(const std::string& text, CompileOptions options = {}) {
  options.compile = false;
  std::string bytes = to_bytes(parse_graph(text));
  return Session::compile(std::as_bytes(std::span(bytes)), options).value();
}

OnnxValue scalar(int64_t& v) { return {OnnxValue::tensor, 7, {}, &v, nullptr, nullptr, {}}; }

std::map<std::string, OnnxValue> run(const Session& session, const Session::Values& inputs) {
  auto made = session.run_values(inputs).value();
  return {made.begin(), made.end()};
}

std::vector<float> floats(const OnnxValue& v) { return {v.values<float>().begin(), v.values<float>().end()}; }

const char* kSumLoop = R"(g (int64 n, float[k] x) => (float[k] y, float[t, k] ys) {
  c = Constant<value = bool {1}>()
  y, ys = Loop(n, c, x) <body = body(int64 i, bool ci, float[k] s) => (bool co, float[k] so, float[k] o) {
    co = Identity(ci) f = Cast<to=1>(i) so = Add(s, f) o = Mul(so, s) }>
})";

TEST(Values, LoopRunsAsOftenAsItsTripCountSays) {
  Session session = compile_text(kSumLoop);
  std::vector<float> x = {1, 2};
  for (int64_t n : {0, 1, 3, 200}) {
    auto out = run(session, {{"n", scalar(n)}, {"x", OnnxValue::of(x, {2})}});
    auto sum = static_cast<float>(n * (n - 1) / 2);
    EXPECT_THAT(floats(out["y"]), ElementsAre(1 + sum, 2 + sum));
    EXPECT_EQ(out["ys"].dims[0], n);
  }
}

TEST(Values, AModelOfTensorsAndBodiesRunsThroughTheTensorInterface) {
  Session session = compile_text(kSumLoop);
  std::vector<float> x = {1, 2}, y(2), ys(6);
  std::vector<int64_t> n = {3};
  auto out = session.run({{"n", TensorView::of(n, {})}, {"x", TensorView::of(x, {2})}},
                         {TensorView::of(y, {2}), TensorView::of(ys, {3, 2})});
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_THAT(y, ElementsAre(4, 5));
  EXPECT_THAT(ys, ElementsAre(1, 4, 2, 6, 8, 15));
}

TEST(Values, ManyThreadsRunOneSession) {
  // Shapes grow in the body and differ between threads: variants are compiled while others run.
  Session session = compile_text(R"(g (int64 n, float[k] x) => (float[z] y, seq(float[k]) s) {
    c = Constant<value = bool {1}>() e = SequenceEmpty<dtype=1>()
    y, s = Loop(n, c, x, e) <body = body(int64 i, bool ci, float[a] v, seq(float[k]) q)
        => (bool co, float[b] vo, seq(float[k]) qo) {
      co = Identity(ci) vo = Concat<axis=0>(v, x) qo = SequenceInsert(q, x) }>
  })");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int64_t repeat = 0; repeat < 20; ++repeat) {
        int64_t n = (t + repeat) % 5;
        std::vector<float> x(static_cast<size_t>(t) + 1, static_cast<float>(t));
        auto made =
            session.run_values({{"n", scalar(n)}, {"x", OnnxValue::of(x, {static_cast<int64_t>(x.size())})}});
        if (!made.ok()) {
          ++wrong;
          continue;
        }
        const OnnxValue &y = made.value()[0].second, &s = made.value()[1].second;
        if (y.dims[0] != (n + 1) * (t + 1) || static_cast<int64_t>(s.elements.size()) != n) ++wrong;
        for (float v : y.values<float>()) wrong += v != static_cast<float>(t);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Values, BranchesMayDifferInRank) {
  Session session = compile_text(R"(g (bool c, float[n, m] x) => (float[] y) {
    u = If(c) <then_branch = t() => (float[a, b] z) { z = Exp(x) },
               else_branch = e() => (float[q] w) { k = Constant<value_ints=[0]>() w = ReduceSum<keepdims=0>(x, k) }>
    y = Neg(u)
  })");
  std::vector<float> x = {0, 0, 1, 0};
  for (bool taken : {true, false, true}) {
    bool c[] = {taken};
    OnnxValue condition{OnnxValue::tensor, 9, {}, c, nullptr, nullptr, {}};
    auto out = run(session, {{"c", condition}, {"x", OnnxValue::of(x, {2, 2})}});
    EXPECT_EQ(out["y"].dims.size(), taken ? 2u : 1u);
    EXPECT_FLOAT_EQ(out["y"].values<float>()[1], taken ? -1.0f : 0.0f);
  }
}

TEST(Values, StringsPassThroughOperatorsThatMoveThem) {
  Session session =
      compile_text(R"(g (string[n] a, string[m] b, int64[k] i) => (string[k] y, bool[k] e, string[u] d) {
    c = Concat<axis=0>(a, b) y = Gather(c, i) one = Constant<value_strings=["x"]>() e = Equal(y, one) d = Unique(y)
  })");
  std::vector<int64_t> i = {3, 0, -1};
  auto out = run(session, {{"a", OnnxValue::of_strings({"x", "ü"}, {2})},
                           {"b", OnnxValue::of_strings({"", "z"}, {2})},
                           {"i", OnnxValue::of(i, {3})}});
  EXPECT_THAT(*out["y"].strings, ElementsAre("z", "x", "z"));
  EXPECT_THAT(*out["d"].strings, ElementsAre("x", "z"));
  auto e = out["e"].values<bool>();
  EXPECT_THAT(std::vector<bool>(e.begin(), e.end()), ElementsAre(false, true, false));
}

TEST(Values, SequencesAndOptionals) {
  Session session = compile_text(R"(g (seq(float[n]) s, optional(float[n]) o, int64 p) =>
      (seq(float[n]) t, float[z] cat, bool has) {
    e = SequenceErase(s, p) x = SequenceAt(s, p) t = SequenceInsert(e, x) cat = ConcatFromSequence<axis=0>(t)
    has = OptionalHasElement(o)
  })");
  std::vector<float> a = {1, 2}, b = {3};
  int64_t p = 0;
  auto s = OnnxValue::of_sequence({OnnxValue::of(a, {2}), OnnxValue::of(b, {1})});
  auto out = run(session, {{"s", s}, {"p", scalar(p)}}); // the optional is left out
  EXPECT_THAT(floats(out["cat"]), ElementsAre(3, 1, 2));
  EXPECT_EQ(out["t"].elements.size(), 2u);
  EXPECT_FALSE(out["has"].values<bool>()[0]);
  out = run(session, {{"s", s}, {"p", scalar(p)}, {"o", OnnxValue::of(a, {2})}});
  EXPECT_TRUE(out["has"].values<bool>()[0]);
  EXPECT_EQ(session.inputs()[0].type_name, "sequence(tensor(float32))");
}

TEST(Values, InputsPassedThroughAreCopied) {
  Session session =
      compile_text("g (seq(float[n]) s, float[n] x) => (seq(float[n]) t) { t = SequenceInsert(s, x) }");
  std::vector<float> x = {1, 2};
  auto out = run(session, {{"s", OnnxValue::of_sequence({})}, {"x", OnnxValue::of(x, {2})}});
  x[0] = 7;
  EXPECT_THAT(floats(out["t"].elements.at(0)), ElementsAre(1, 2));
  EXPECT_TRUE(out["t"].elements[0].owner);
}

std::string error_of(const std::string& text, const Session::Values& inputs) {
  std::string bytes = to_bytes(parse_graph(text));
  CompileOptions options;
  options.compile = false;
  auto session = Session::compile(std::as_bytes(std::span(bytes)), options);
  if (!session.ok()) return session.error().message;
  auto made = session.value().run_values(inputs);
  return made.ok() ? "" : made.error().message;
}

TEST(Values, ErrorsNameNodeAndCause) {
  std::vector<float> x = {1, 2};
  int64_t p = 5;
  auto s = OnnxValue::of_sequence({OnnxValue::of(x, {2})});
  EXPECT_THAT(
      error_of("g (seq(float[n]) s, int64 p) => (float[n] y) { [at] y = SequenceAt(s, p) }",
               {{"s", s}, {"p", scalar(p)}}),
      AllOf(HasSubstr("'at' (SequenceAt"), HasSubstr("position 5 is out of range for a sequence of 1")));
  EXPECT_THAT(error_of("g (optional(float[n]) o) => (float[n] y) { y = OptionalGetElement(o) }", {}),
              HasSubstr("the optional is empty"));
  EXPECT_THAT(error_of("g (seq(float[n]) s) => (float[n] y) { y = ConcatFromSequence<axis=0>(s) }",
                       {{"s", OnnxValue::of(x, {2})}}),
              HasSubstr("input 's' is a tensor, expected sequence(tensor(float32))"));
  EXPECT_THAT(error_of("g (string[n] s) => (bool[n] y) { y = RegexFullMatch<pattern=\"(\">(s) }", {}),
              HasSubstr("is no regular expression"));
  EXPECT_THAT(error_of("g (string[n] s) => (float[n] y) { y = Cast<to=1>(s) }",
                       {{"s", OnnxValue::of_strings({"1x"}, {1})}}),
              HasSubstr("'1x' is no number"));
  EXPECT_THAT(error_of("g (string[n] s) => (string[n] y) { y = Identity(s) }",
                       {{"s", OnnxValue::of_strings({"a"}, {3})}}),
              HasSubstr("1 strings for 3 elements"));
}

TEST(Values, AnEndlessLoopStopsAtTheTimeLimit) {
  Graph graph = import_text(R"(g (float[k] x) => (float[z] y) {
    c = Constant<value = bool {1}>()
    y = Loop("", c, x) <body = body(int64 i, bool ci, float[a] s) => (bool co, float[b] so) {
      m = ReduceMax<keepdims=0>(s) below = Constant<value_float=-1.0>() co = Greater(m, below) so = Abs(s) }>
  })");
  CompileOptions options;
  options.compile = false;
  runtime::ValueSession session(driver::compile_values(std::move(graph), options).bind());
  std::vector<RuntimeValue> out;
  runtime::RunOptions limited;
  limited.time_limit_ms = 20;
  try {
    session.run({RuntimeValue(Tensor::make(DType::f32, {3}))}, out, limited);
    FAIL() << "it ended";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("longer than the limit of 20 ms"));
  }
}

TEST(Values, NothingIsCompiledBeforeAllPartsAreLowered) {
  // The Loop is found to need a run while the second part is lowered: behind it all is split anew.
  Graph graph = import_text(R"(g (float[k] x, string[m] s) => (float[k] y, float[z] ys) {
    y = Abs(x)
    found = RegexFullMatch<pattern="a.*">(s) counted = Cast<to=1>(found) sum = ReduceSum<keepdims=0>(counted)
    n = Cast<to=7>(sum) c = Constant<value = bool {1}>()
    ys = Loop(n, c, x) <body = body(int64 i, bool ci, float[a] v) => (bool co, float[b] vo) {
      co = Identity(ci) vo = Neg(v) }>
  })");
  CompileOptions options;
  options.compile = false;
  std::map<std::string, size_t> stages;
  options.progress = [&](const std::string& stage, int, int) { ++stages[stage]; };
  const driver::ValueProgram program = driver::compile_values(std::move(graph), options);
  size_t variants = 0;
  for (const auto& segment : program.segments) variants += segment->specialiser().variants().size();
  EXPECT_GE(program.segments.size(), 3u);
  EXPECT_EQ(stages["schedule"], variants);
  EXPECT_GT(stages["lower"], variants);
}

// --- value operators on their own

RuntimeValue call_op(const char* op, std::map<std::string, extern_kernels::Attribute> attributes,
                     std::vector<RuntimeValue> inputs, bool last_use = false, int outputs = 1) {
  runtime::ValueNode node{"", op, 21, std::move(attributes), {}, {}};
  auto make = runtime::find_value_op("", op, 21);
  EXPECT_TRUE(make) << op;
  std::vector<runtime::ValueArgument> arguments;
  for (RuntimeValue& v : inputs) arguments.push_back({&v, last_use});
  std::vector<RuntimeValue> results(static_cast<size_t>(outputs));
  make(node)({arguments, results});
  return results[0];
}

RuntimeValue text(Strings values) {
  auto n = static_cast<int64_t>(values.size());
  return RuntimeValue(Tensor::of_strings({n}, std::move(values)));
}

TEST(ValueOps, BitCastTakesEveryTypeOfAWidth) {
  Tensor x = Tensor::make(DType::f6e3m2, {3});
  const uint8_t bits[] = {0x00, 0x2a, 0x3f};
  std::copy_n(bits, 3, x.as_mutable<uint8_t>().begin());
  runtime::ValueNode node{"", "BitCast", 26, {{"to", static_cast<int64_t>(DType::f6e2m3)}}, {}, {}};
  RuntimeValue given(x), made;
  const std::vector<runtime::ValueArgument> arguments = {{&given, false}};
  runtime::find_value_op("", "BitCast", 26)(node)({arguments, std::span(&made, 1)});
  EXPECT_EQ(made.tensor.dtype, DType::f6e2m3);
  EXPECT_THAT(made.tensor.as<uint8_t>(), ElementsAre(0x00, 0x2a, 0x3f));
  for (int64_t number : {int64_t{0}, int64_t{-1}, int64_t{29}, int64_t{1} << 32}) {
    node.attributes["to"] = number;
    EXPECT_THROW(runtime::find_value_op("", "BitCast", 26)(node), Error) << number;
  }
}

TEST(ValueOps, StringSplitAsPythonDoes) {
  auto parts = [&](const char* delimiter, int64_t limit, const std::string& s) {
    return *call_op("StringSplit", {{"delimiter", std::string(delimiter)}, {"maxsplit", limit}}, {text({s})},
                    false, 2)
                .tensor.strings;
  };
  EXPECT_THAT(parts("", -1, "  a  b c "), ElementsAre("a", "b", "c"));
  EXPECT_THAT(parts("", 1, " a  b c "), ElementsAre("a", "b c "));
  EXPECT_THAT(parts("", 0, " a b"), ElementsAre("a b"));
  EXPECT_THAT(parts(",", -1, "a,,b,"), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(parts(",", 1, "a,,b,"), ElementsAre("a", ",b,"));
  EXPECT_THAT(parts("ab", -1, "abxabab"), ElementsAre("", "x", "", ""));
}

TEST(ValueOps, StringNormalizerChangesCaseOfUnicode) {
  auto out = call_op("StringNormalizer",
                     {{"case_change_action", std::string("UPPER")}, {"stopwords", Strings{"Monday"}}},
                     {text({"monday", "größe", "\xff\xfe"})});
  EXPECT_THAT(*out.tensor.strings, ElementsAre("GRÖßE", "\xff\xfe"));
  out = call_op("StringNormalizer", {{"stopwords", Strings{"a"}}}, {text({"A", "a"})});
  EXPECT_THAT(*out.tensor.strings, ElementsAre(""));
}

TEST(ValueOps, ASequenceGrowsInPlaceForItsLastReader) {
  RuntimeValue s = RuntimeValue::sequence({text({"a"})}), kept = s;
  auto longer = call_op("SequenceInsert", {}, {s, text({"b"})});
  EXPECT_EQ(kept.elements->size(), 1u);
  EXPECT_EQ(longer.elements->size(), 2u);
  std::vector<RuntimeValue>* before = longer.elements.get();
  std::vector<RuntimeValue> inputs;
  inputs.push_back(std::move(longer));
  inputs.push_back(text({"c"}));
  auto third = call_op("SequenceInsert", {}, std::move(inputs), /*last_use=*/true);
  EXPECT_EQ(third.elements.get(), before);
}

TEST(ValueOps, ConcatenateChecksShapes) {
  Tensor a = Tensor::make(DType::f32, {2, 3}), b = Tensor::make(DType::f32, {2, 1});
  EXPECT_EQ(concatenate({&a, &b}, -1, false).dims, (std::vector<int64_t>{2, 4}));
  EXPECT_THROW(concatenate({&a, &b}, 0, false), Error);
  EXPECT_THROW(concatenate({&a, &b}, 1, true), Error);
  EXPECT_THROW(concatenate({&a, &a}, 3, true), Error);
  EXPECT_EQ(concatenate({&a, &a}, 2, true).dims, (std::vector<int64_t>{2, 3, 2}));
}

} // namespace
} // namespace tbx::test
