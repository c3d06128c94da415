// What loading a model may take: time, memory and stack, and that its cost does not grow faster than the
// model.
#include <alloca.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "base/budget.h"
#include "base/error.h"
#include "base/sha1.h"
#include "base/stack.h"
#include "driver/limits.h"
#include "fusion/dependencies.h"
#include "graph/passes/graph_passes.h"
#include "graph_helper.h"
#include "lowering/lower.h"
#include "tests/support/onnx_text.h"

namespace tbx {
namespace {

using test::error_of;
using test::GraphHelper;
using ::testing::HasSubstr;

/// x -> Neg -> Neg -> ...: one expression, whatever their number.
Graph chain(int nodes) {
  GraphHelper h;
  ValueId v = h.input("x", DType::f32, {h.symbol("n")});
  for (int i = 0; i < nodes; ++i) v = h.node("Neg", {v});
  h.output(v);
  return std::move(h.graph);
}

TEST(LoadCost, AValueComesFromFewNodes) {
  const ir::Program p = lowering::lower_or_throw(chain(3000));
  size_t most = 0;
  for (const ir::Operation& op : p.operations) most = std::max(most, op.origins.size());
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, 256u);
}

/// Pairs (operation, operation that must run before it) of `updates` scatters into one tensor.
size_t edges_of_scatters(int updates) {
  GraphHelper h;
  ValueId v = h.input("x", DType::f32, {8});
  ValueId rows = h.input("rows", DType::i64, {2, 1}), values = h.input("values", DType::f32, {2});
  for (int i = 0; i < updates; ++i) v = h.node("ScatterND", {v, rows, values});
  h.output(v);
  const ir::Program p = lowering::lower_or_throw(h.graph);
  size_t edges = 0;
  for (const auto& before : fusion::analyse(p).predecessors) edges += before.size();
  return edges;
}

TEST(LoadCost, ScattersInARowWaitForTheLastOne) {
  const size_t few = edges_of_scatters(20), many = edges_of_scatters(200);
  EXPECT_GE(few, 20u);
  EXPECT_LE(many, 11 * few);
}

/// The same of a tensor joined from `n` parts, too large to be computed by each of the `n` nodes that read
/// it.
size_t edges_of_parts(int n) {
  GraphHelper h;
  ValueId x = h.input("x", DType::f32, {64});
  std::vector<ValueId> parts;
  for (int i = 0; i < n; ++i) parts.push_back(h.node(i % 2 ? "Exp" : "Tanh", {h.node("Relu", {x})}));
  ValueId all = h.node("Concat", parts, {{"axis", int64_t{0}}});
  for (int i = 0; i < n; ++i) h.output(h.node("CumSum", {all, h.constant(test::ints({}, {0}))}));
  const ir::Program p = lowering::lower_or_throw(h.graph);
  size_t edges = 0;
  for (const auto& before : fusion::analyse(p).predecessors) edges += before.size();
  return edges;
}

TEST(LoadCost, ManyReadersOfManyParts) {
  const size_t few = edges_of_parts(100), many = edges_of_parts(400);
  EXPECT_GE(few, 150u);
  EXPECT_LE(many, 5 * few);
}

TEST(LoadLimits, MemoryIsCountedAndGivenBack) {
  const LoadScope scope(0, 1 << 20);
  {
    Tensor t = Tensor::make(DType::f32, {1 << 17});
    EXPECT_THAT(error_of([] { Tensor::make(DType::f32, {1 << 18}); }),
                HasSubstr("more than the limit of 1048576 bytes for what is made of it "
                          "(raise load_memory (tbx: --load-memory) if the model is right)"));
  }
  Tensor::make(DType::f32, {1 << 17});
  EXPECT_GE(scope.budget().peak(), 1 << 19);
}

TEST(LoadLimits, ExpressionsCount) {
  EXPECT_THAT(error_of([] {
                const LoadScope scope(0, 100'000);
                GraphHelper h;
                ValueId v = h.input("x", DType::f32, {8});
                for (int i = 0; i < 3000; ++i) v = h.node("Exp", {v});
                h.output(v);
                lowering::lower_or_throw(h.graph);
              }),
              HasSubstr("load_memory"));
}

TEST(LoadLimits, TimeIsLookedAtInEveryStage) {
  const Graph graph = chain(20'000);
  const std::string over = "loading the model took longer than the limit of 1 ms";
  auto late = [&](const std::function<void()>& f) {
    return error_of([&] {
      const LoadScope scope(1, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      f();
    });
  };
  EXPECT_THAT(late([&] { lowering::lower_or_throw(graph); }), HasSubstr(over));
  EXPECT_THAT(late([&] {
                Graph copy = graph;
                graph::run_graph_passes(copy, {});
              }),
              HasSubstr(over));
  std::string text = "g (float[N] x) => (float[N] y) {";
  for (int i = 0; i < 300; ++i) text += fmt::format(" v{} = Neg({})", i + 1, i ? fmt::format("v{}", i) : "x");
  const std::string bytes = test::to_bytes(test::parse_graph(text + " y = Neg(v300) }"));
  EXPECT_THAT(late([&] { test::import_bytes(bytes); }), HasSubstr(over));
  EXPECT_THAT(late([&] { sha1_hex(std::vector<std::byte>(1 << 20)); }),
              HasSubstr("raise load_time_limit_ms"));
}

TEST(LoadLimits, TheCompilerHasItsOwn) {
  const LoadScope scope(900, 0); // far more than the rest takes on a busy machine
  {
    const OutsideOfLoad waiting;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  EXPECT_NO_THROW(check_stop());
}

TEST(LoadLimits, Options) {
  using driver::with_limits;
  const CompileOptions usual = with_limits({});
  EXPECT_EQ(usual.max_nodes, 2'000'000);
  EXPECT_EQ(usual.load_time_limit_ms, 0);
  EXPECT_FALSE(usual.strict_links);
  CompileOptions o;
  o.max_memory = 1000;
  o.time_limit_ms = 70;
  EXPECT_EQ(with_limits(o).load_memory, int64_t{64} << 20);
  EXPECT_EQ(with_limits(o).load_time_limit_ms, 70);
  o.untrusted = true;
  o.max_nodes = 12;
  const CompileOptions untrusted = with_limits(o);
  EXPECT_EQ(untrusted.max_nodes, 12);
  EXPECT_TRUE(untrusted.strict_links);
  for (const driver::Limit& limit : driver::limits()) EXPECT_GT(untrusted.*limit.value, 0) << limit.name;
  for (const driver::Limit& limit : driver::limits()) {
    CompileOptions bad;
    bad.*limit.value = -1;
    EXPECT_THAT(error_of([&] { with_limits(bad); }), HasSubstr(fmt::format("option {} is -1", limit.name)));
  }
  o.operator_libraries = {"libmine.so"};
  EXPECT_THAT(error_of([&] { with_limits(o); }), HasSubstr("operator_libraries"));
}

/// A model of `depth` Ifs inside each other, as deep as is allowed.
std::string nested(int depth) {
  onnx::ModelProto model = test::parse_graph("g (bool c, float[2] x) => (float[2] y) { y = Relu(x) }");
  for (int i = 0; i < depth; ++i) {
    onnx::ModelProto outer = test::parse_graph("g (bool c, float[2] x) => (float[2] y) { y = If(c) }");
    auto add_branch = [&](const char* name, const onnx::GraphProto& graph) {
      auto* a = outer.mutable_graph()->mutable_node(0)->add_attribute();
      a->set_name(name);
      a->set_type(onnx::AttributeProto::GRAPH);
      *a->mutable_g() = graph;
    };
    model.mutable_graph()->clear_input();
    add_branch("then_branch", model.graph());
    add_branch("else_branch", test::parse_graph("e () => (float[2] z) { z = Neg(x) }").graph());
    model = outer;
  }
  return test::to_bytes(model);
}

/// Runs `f` on a thread with a stack of 128 KB, as musl gives threads.
void on_small_stack(std::function<void()> f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 << 10);
  pthread_t thread;
  auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &f), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(SmallStack, DeepNesting) {
  const std::string bytes = nested(60);
  on_small_stack([&] {
    CompileOptions options;
    options.compile = false;
    auto session = Session::compile(std::as_bytes(std::span(bytes)), options);
    ASSERT_TRUE(session.ok()) << session.error().message;
    for (const char* stage : {"import", "simplify", "plan"})
      EXPECT_TRUE(session.value().dump(stage).ok()) << stage;
    bool yes[] = {true};
    float x[] = {-1, 2};
    auto outputs = session.value().run({{"c", TensorView::of(yes, {})}, {"x", TensorView::of(x, {2})}});
    ASSERT_TRUE(outputs.ok()) << outputs.error().message;
    EXPECT_EQ(outputs.value()[0].values<float>()[0], 0);
    EXPECT_EQ(outputs.value()[0].values<float>()[1], 2);
  });
}

TEST(SmallStack, RunsEndWhereTheCallerIsInACancelScope) {
  const std::string bytes = nested(2);
  on_small_stack([&] {
    CompileOptions options;
    options.compile = false;
    const Session session = Session::compile(std::as_bytes(std::span(bytes)), options).value();
    bool yes[] = {true};
    float x[] = {-1, 2};
    auto run = [&] { return session.run({{"c", TensorView::of(yes, {})}, {"x", TensorView::of(x, {2})}}); };
    const std::atomic<bool> cancel{true};
    {
      const CancelScope scope(cancel);
      const auto failed = run();
      ASSERT_FALSE(failed.ok());
      EXPECT_THAT(failed.error().message, HasSubstr("the run was cancelled"));
    }
    EXPECT_TRUE(run().ok());
  });
}

/// Whether work that is called `depth` bytes further down gets a stack of its own.
[[gnu::noinline]] bool moves_away(size_t depth) {
  auto* room = static_cast<volatile char*>(alloca(depth + 1));
  room[0] = 0;
  const auto caller = std::this_thread::get_id();
  bool moved = false;
  with_stack([&] { moved = std::this_thread::get_id() != caller; });
  return moved;
}

TEST(SmallStack, OfTheFirstThreadIsKnown) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "frames of sanitizers lie elsewhere";
#endif
  if (gettid() != getpid()) GTEST_SKIP() << "tests run in another thread";
  pthread_attr_t attributes; // what the library reads from the list of mappings
  ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  void* lowest = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  const size_t left = static_cast<char*>(__builtin_frame_address(0)) - static_cast<char*>(lowest);
  constexpr size_t kMiB = size_t{1} << 20;
  if (left < 5 * kMiB || left > 60 * kMiB) GTEST_SKIP() << left << " bytes of stack";
  EXPECT_FALSE(moves_away(0));
  EXPECT_FALSE(moves_away(left - 3 * kMiB));
  EXPECT_TRUE(moves_away(left - 3 * kMiB / 2));
}

TEST(SmallStack, ErrorsPassThrough) {
  on_small_stack([] {
    EXPECT_THAT(error_of([] { with_stack([] { throw_model_error("deep inside"); }); }),
                HasSubstr("deep inside"));
  });
}

TEST(Sha1, KnownDigests) { // of FIPS 180-4 and Python's hashlib
  auto digest = [](const std::string& s) { return sha1_hex(std::as_bytes(std::span(s))); };
  EXPECT_EQ(digest(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(digest("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(digest(std::string(55, 'a')), "c1c8bbdc22796e28c0e15163d20899b65621d65a");
  EXPECT_EQ(digest(std::string(63, 'a')), "03f09f5b158a7a8cdad920bddc29b81c18a551f5");
  EXPECT_EQ(digest(std::string(64, 'a')), "0098ba824b5c16427bd7a1122a5a442a25ec644d");
  EXPECT_EQ(digest(std::string(119, 'a')), "ee971065aaa017e0632a8ca6c77bb3bf8b1dfc56");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

} // namespace
} // namespace tbx
