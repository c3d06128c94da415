// Runs whose inputs and outputs are the same memory each time (Session::bind), on the fake device, which
// counts what its streams are asked for, and on the CPU. Results are held against loops of our own.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "device/device.h"
#include "device/fake/fake_device.h"
#include "tensorbox/device.h"
#include "tests/support/onnx_text.h"

namespace tbx::test {
namespace {

using testing::HasSubstr;

TensorView view(const OutputTensor& t) { return {t.data, t.type, t.dims, t.device}; }

std::string text_of(const std::optional<Failure>& failure) { return failure ? failure->message : ""; }

class Bound : public testing::Test {
protected:
  void SetUp() override { setenv("TBX_FAKE_CUDA", "1", 1); }
  void TearDown() override { unsetenv("TBX_FAKE_CUDA"); }

  static Session compile(const std::string& graph, CompileOptions options) {
    const std::string bytes = to_bytes(parse_graph(graph));
    return Session::compile(std::as_bytes(std::span(bytes)), options).value();
  }
  static Session compile(const std::string& graph, const std::string& device = "cuda") {
    CompileOptions options;
    options.device = device;
    return compile(graph, options);
  }
  /// y = the sum of all rows so far, which the session keeps.
  static Session summing(CompileOptions options) {
    options.state = {{"rows", "longer"}};
    return compile("g (float[n, 3] x, float[past, 3] rows) => (float[3] y, float[all, 3] longer) "
                   "{ longer = Concat <axis = 0> (rows, x) axes = Constant <value_ints = [0]> () "
                   "y = ReduceSum <keepdims = 0> (longer, axes) }",
                   options);
  }
  /// y = -2 x + 1 for any number of rows.
  static Session affine(const std::string& device = "cuda") {
    return compile("g (float[n, 3] x) => (float[n, 3] y) <float one = {1}> { d = Add (x, x) e = Neg (d) "
                   "y = Add (e, one) }",
                   device);
  }
  static std::vector<float> affine_of(const std::vector<float>& x) {
    std::vector<float> y;
    for (float v : x) y.push_back(1 - 2 * v);
    return y;
  }
  static std::vector<float> numbers(int64_t rows, float first) {
    std::vector<float> v(static_cast<size_t>(rows * 3));
    std::iota(v.begin(), v.end(), first);
    return v;
  }
  static OutputTensor there(std::vector<float> values, std::vector<int64_t> dims) {
    return to_device(TensorView::of(values, std::move(dims)), "cuda").value();
  }
  static std::vector<float> floats(const OutputTensor& t) {
    const OutputTensor host = to_host(t).value();
    const auto values = host.values<float>();
    return {values.begin(), values.end()};
  }
  static device::FakeCounts counts() { return device::counts_of(*device::open("cuda")); }
  /// Each of ten runs starts a graph, marks its end for whoever needs the memory, asks where so many tensors
  /// lie, and does nothing else.
  template <class Run> static void expect_starts_of_graphs(uint64_t located, const Run& run) {
    const device::FakeCounts before = counts();
    for (int turn = 0; turn < 10; ++turn) ASSERT_TRUE(run());
    const device::FakeCounts after = counts();
    EXPECT_EQ(after.started - before.started, 10u);
    EXPECT_EQ(after.marked - before.marked, 10u);
    EXPECT_EQ(after.located - before.located, 10 * located);
    EXPECT_EQ(after.queried - before.queried, 0u);
    EXPECT_EQ(after.waited - before.waited, 0u);
    EXPECT_EQ(after.adopted - before.adopted, 0u);
    EXPECT_EQ(after.allocated - before.allocated, 0u);
    EXPECT_EQ(after.launches - before.launches, 0u);
    EXPECT_EQ(after.recorded - before.recorded, 0u);
  }
};

TEST_F(Bound, ReadsAndWritesTheSameMemory) {
  const Session s = affine();
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  for (int64_t rows : {0, 1, 7, 301}) {
    const std::vector<int64_t> dims = {rows, 3};
    const OutputTensor x = there(numbers(rows, 0), dims), y = there(numbers(rows, 0), dims);
    const BoundRun bound = s.bind({{"x", view(x)}}, {view(y)}).value();
    for (int turn = 0; turn < 8; ++turn) {
      std::vector<float> now = numbers(rows, static_cast<float>(turn));
      ASSERT_FALSE(assign(x, TensorView::of(now, dims)));
      const std::optional<Failure> failed = turn % 3 == 0   ? bound.run()
                                            : turn % 3 == 1 ? bound.run_on(stream.get())
                                                            : bound.run_async(stream.get());
      ASSERT_FALSE(failed) << text_of(failed);
      ASSERT_FALSE(s.synchronize());
      EXPECT_EQ(floats(y), affine_of(now)) << rows << " rows, turn " << turn;
    }
  }
}

TEST_F(Bound, IsOneStartOfAGraph) {
  const Session s = affine();
  const std::vector<int64_t> dims = {5, 3};
  const OutputTensor x = there(numbers(5, 1), dims), y = there(numbers(5, 0), dims);
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  const BoundRun bound = s.bind({{"x", view(x)}}, {view(y)}).value();
  for (int turn = 0; turn < 3; ++turn) ASSERT_FALSE(bound.run_async(stream.get()));
  expect_starts_of_graphs(0, [&] { return !bound.run_async(stream.get()); });
  ASSERT_FALSE(s.synchronize());
  EXPECT_EQ(floats(y), affine_of(numbers(5, 1)));
}

/// A run that is not bound asks where its memory lies, and nothing else besides.
TEST_F(Bound, WhatAPlainRunAsksFor) {
  const Session s = affine();
  const std::vector<int64_t> dims = {5, 3};
  const OutputTensor x = there(numbers(5, 1), dims), y = there(numbers(5, 0), dims);
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  auto run = [&] { return s.run_async(stream.get(), {{"x", view(x)}}, {view(y)}).ok(); };
  for (int turn = 0; turn < 3; ++turn) ASSERT_TRUE(run());
  expect_starts_of_graphs(2, run);
  ASSERT_FALSE(s.synchronize());
}

/// Graphs are changed for other addresses, end with memory that grows, and go where there are too many.
TEST_F(Bound, HoldsBetweenOtherRuns) {
  const Session s = affine();
  const std::shared_ptr<void> one = make_stream("cuda").value(), two = make_stream("cuda").value();
  const std::vector<int64_t> dims = {4, 3};
  std::vector<OutputTensor> x, y;
  std::vector<BoundRun> bound;
  for (int b = 0; b < 20; ++b) { // more than a context keeps graphs
    x.push_back(there(numbers(4, static_cast<float>(100 * b)), dims));
    y.push_back(there(numbers(4, 0), dims));
    bound.push_back(s.bind({{"x", view(x[b])}}, {view(y[b])}).value());
  }
  for (int turn = 0; turn < 6; ++turn) {
    for (size_t b = 0; b < bound.size(); ++b) {
      ASSERT_FALSE(bound[b].run_async(b % 2 ? one.get() : two.get()));
      const OutputTensor other = there(numbers(4, 7), dims);
      const OutputTensor made =
          s.run_on(one.get(), {{"x", view(other)}}, {TensorView{nullptr, 0, {}, 0}}).value()[0];
      EXPECT_EQ(floats(made), affine_of(numbers(4, 7)));
    }
    const int64_t rows = 100 * (turn + 1);
    std::vector<float> large = numbers(rows, 2);
    const auto made = s.run({{"x", TensorView::of(large, {rows, 3})}}).value();
    EXPECT_TRUE(std::ranges::equal(made[0].values<float>(), affine_of(large)));
    ASSERT_FALSE(s.synchronize());
    for (size_t b = 0; b < bound.size(); ++b) {
      EXPECT_EQ(floats(y[b]), affine_of(numbers(4, static_cast<float>(100 * b)))) << b << ", " << turn;
      std::vector<float> none(12, 0);
      ASSERT_FALSE(assign(y[b], TensorView::of(none, dims)));
    }
  }
}

/// Memory that is not aligned is copied by nodes of the graph, whose addresses another run may change.
TEST_F(Bound, CopiesKeepTheirAddresses) {
  const Session s = affine();
  const OutputTensor all = there(numbers(40, 0), {40, 3}), y = there(numbers(2, 0), {2, 3});
  auto rows_at = [&](size_t first) {
    return TensorView{static_cast<std::byte*>(all.data) + first * 12, 1, {2, 3}, 0};
  };
  const BoundRun a = s.bind({{"x", rows_at(1)}}, {view(y)}).value();
  const BoundRun b = s.bind({{"x", rows_at(5)}}, {view(y)}).value();
  for (int turn = 0; turn < 6; ++turn) {
    ASSERT_FALSE(a.run());
    EXPECT_EQ(floats(y), affine_of(numbers(2, 3)));
    ASSERT_FALSE(a.run());
    ASSERT_FALSE(b.run());
    EXPECT_EQ(floats(y), affine_of(numbers(2, 15)));
  }
}

TEST_F(Bound, EndsWhenItsRunsHave) {
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  const Session s = affine();
  const OutputTensor x = there(numbers(5, 1), {5, 3}), y = there(numbers(5, 0), {5, 3});
  {
    const BoundRun bound = s.bind({{"x", view(x)}}, {view(y)}).value();
    for (int turn = 0; turn < 4; ++turn) ASSERT_FALSE(bound.run_async(stream.get()));
    EXPECT_FALSE((mark_stream("cuda", stream.get()).value())());
  }
  EXPECT_EQ(floats(y), affine_of(numbers(5, 1))); // nobody else has waited
}

TEST_F(Bound, FindsIndicesThatAreOutside) {
  const std::string graph = "g (float[4] t, int64[n] i) => (float[n] y) { y = Gather (t, i) }";
  const Session s = compile(graph);
  const OutputTensor t = there({1, 2, 3, 4}, {4}), y = there({0, 0, 0}, {3});
  std::vector<int64_t> good = {2, 0, 3}, bad = {2, 9, 3};
  const OutputTensor i = to_device(TensorView::of(good, {3}), "cuda").value();
  const BoundRun bound = s.bind({{"t", view(t)}, {"i", view(i)}}, {view(y)}).value();
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  for (int turn = 0; turn < 4; ++turn) {
    ASSERT_FALSE(assign(i, TensorView::of(good, {3})));
    ASSERT_FALSE(bound.run());
    EXPECT_EQ(floats(y), (std::vector<float>{3, 1, 4}));
    ASSERT_FALSE(assign(i, TensorView::of(bad, {3})));
    EXPECT_THAT(text_of(bound.run()), HasSubstr("index 9 is outside an axis of size 4"));
    ASSERT_FALSE(bound.run_async(stream.get()));
    EXPECT_THAT(text_of(s.synchronize()), HasSubstr("index 9 is outside an axis of size 4"));
    ASSERT_FALSE(bound.run_async(stream.get()));
    ASSERT_FALSE(wait_for_stream("cuda", stream.get()));
    EXPECT_THAT(text_of(bound.run_async(stream.get())), HasSubstr("index 9 is outside an axis of size 4"));
    ASSERT_FALSE(s.synchronize());
  }
}

/// A check that fails tells the host itself.
TEST_F(Bound, CopiesNothingForChecks) {
  const Session s = compile("g (float[4] t, int64[n] i) => (float[n] y) { y = Gather (t, i) }");
  const OutputTensor t = there({1, 2, 3, 4}, {4}), y = there({0, 0, 0}, {3});
  std::vector<int64_t> indices = {2, 0, 3};
  const OutputTensor i = to_device(TensorView::of(indices, {3}), "cuda").value();
  const BoundRun bound = s.bind({{"t", view(t)}, {"i", view(i)}}, {view(y)}).value();
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  ASSERT_FALSE(bound.run_async(stream.get())); // makes what checks report to
  const size_t copied = counts().copied;
  for (int turn = 0; turn < 4; ++turn) ASSERT_FALSE(bound.run_async(stream.get()));
  ASSERT_FALSE(s.synchronize());
  EXPECT_EQ(counts().copied, copied);
  EXPECT_EQ(floats(y), (std::vector<float>{3, 1, 4}));
  EXPECT_GT(counts().copied, copied); // of y
}

/// Sizes that are elements of an input are those of each run.
TEST_F(Bound, ReadsElementsInEveryRun) {
  const Session s = compile("g (float[12] x, int64[2] shape) => (float[a, b] y) { y = Reshape (x, shape) }");
  const OutputTensor x = there(numbers(4, 0), {12}), y = there(numbers(4, 0), {3, 4});
  std::vector<int64_t> good = {3, 4}, other = {4, 3};
  const OutputTensor shape = to_device(TensorView::of(good, {2}), "cuda").value();
  const BoundRun bound = s.bind({{"x", view(x)}, {"shape", view(shape)}}, {view(y)}).value();
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_FALSE(assign(shape, TensorView::of(good, {2})));
    const std::optional<Failure> failed = bound.run();
    ASSERT_FALSE(failed) << text_of(failed);
    EXPECT_EQ(floats(y), numbers(4, 0));
    ASSERT_FALSE(assign(shape, TensorView::of(other, {2})));
    EXPECT_THAT(text_of(bound.run()), HasSubstr("output 'y' is float32[4, 3], its view is float32[3, 4]"));
  }
}

/// What the host works on is copied there in every run.
TEST_F(Bound, CopiesForTheHostInEveryRun) {
  const Session s = compile("g (float[n] x) => (int64[1, m] y) { y = NonZero (x) }");
  const OutputTensor x = there({1, 0, 2, 0}, {4}), y = there({0, 0, 0, 0}, {4});
  const BoundRun bound = s.bind({{"x", view(x)}}, {TensorView{y.data, 7, {1, 2}, 0}}).value();
  for (int turn = 0; turn < 3; ++turn)
    for (int64_t first : {0, 1}) {
      std::vector<float> now(4, 0);
      now[static_cast<size_t>(first)] = now[static_cast<size_t>(first) + 2] = 1;
      ASSERT_FALSE(assign(x, TensorView::of(now, {4})));
      const std::optional<Failure> failed = bound.run();
      ASSERT_FALSE(failed) << text_of(failed);
      OutputTensor made = y;
      made.type = 7, made.dims = {1, 2};
      EXPECT_THAT(to_host(made).value().values<int64_t>(), testing::ElementsAre(first, first + 2));
    }
}

TEST_F(Bound, RunsOnTheHost) {
  for (const char* device : {"", "cuda"}) {
    const Session s = affine(device);
    std::vector<float> x = numbers(3, 0), y(9, 0);
    const BoundRun bound = s.bind({{"x", TensorView::of(x, {3, 3})}}, {TensorView::of(y, {3, 3})}).value();
    for (int turn = 0; turn < 5; ++turn) {
      std::ranges::copy(numbers(3, static_cast<float>(turn)), x.begin());
      ASSERT_FALSE(bound.run());
      EXPECT_EQ(y, affine_of(x));
    }
    EXPECT_THAT(text_of(bound.run_async(nullptr)),
                HasSubstr(*device ? "output 'y' of an asynchronous run is memory of the host"
                                  : "the session runs on the CPU, which has no streams"));
  }
  std::vector<float> x = {1, 2, 3}, y(3);
  bool more = true;
  const Session branches =
      compile("g (float[n] x, bool c) => (float[n] y) { y = If (c) <then_branch = t () => "
              "(float[n] a) { a = Neg (x) }, else_branch = e () => (float[n] b) { b = "
              "Abs (x) }> }",
              "");
  const BoundRun bound =
      branches
          .bind({{"x", TensorView::of(x, {3})}, {"c", TensorView{&more, 9, {}}}}, {TensorView::of(y, {3})})
          .value();
  ASSERT_FALSE(bound.run());
  EXPECT_EQ(y, (std::vector<float>{-1, -2, -3}));
  more = false;
  ASSERT_FALSE(bound.run());
  EXPECT_EQ(y, x);
}

TEST_F(Bound, KeepsState) {
  CompileOptions options;
  options.device = "cuda";
  options.state_capacity = 40;
  const Session s = summing(options);
  const OutputTensor x = there({1, 2, 3}, {1, 3}), y = there({0, 0, 0}, {3});
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  const BoundRun bound = s.bind({{"x", view(x)}}, {view(y)}).value();
  for (int turn = 1; turn <= 40; ++turn) {
    ASSERT_FALSE(bound.run_async(stream.get()));
    EXPECT_EQ(s.state_length(), turn);
    if (turn % 7) continue;
    ASSERT_FALSE(s.synchronize());
    const auto n = static_cast<float>(turn);
    EXPECT_EQ(floats(y), (std::vector<float>{n, 2 * n, 3 * n}));
  }
  EXPECT_THAT(text_of(bound.run()), HasSubstr("room for 40"));
}

/// Bound before the state has any memory, and kept while it moves.
TEST_F(Bound, KeepsStateThatGrows) {
  for (const char* device : {"", "cuda"}) {
    CompileOptions options;
    options.device = device;
    options.state_limit = 700;
    const Session s = summing(options);
    std::vector<float> one = {1, 2, 3}, many(3 * 100, 1), y(3), z(3);
    const BoundRun single = s.bind({{"x", TensorView::of(one, {1, 3})}}, {TensorView::of(y, {3})}).value(),
                   block = s.bind({{"x", TensorView::of(many, {100, 3})}}, {TensorView::of(z, {3})}).value();
    for (int turn = 1; turn <= 257; ++turn) ASSERT_FALSE(single.run());
    EXPECT_EQ(y, (std::vector<float>{257, 514, 771}));
    for (int turn = 0; turn < 4; ++turn) ASSERT_FALSE(block.run());
    EXPECT_EQ(z, (std::vector<float>{657, 914, 1171}));
    EXPECT_THAT(text_of(block.run()), HasSubstr("limit is 700 (option state_limit)"));
    EXPECT_EQ(s.state_length(), 657);
    ASSERT_FALSE(single.run());
    EXPECT_EQ(y, (std::vector<float>{658, 916, 1174}));
  }
}

TEST_F(Bound, TakesCallsOfManyThreads) {
  const Session s = affine();
  const OutputTensor x = there(numbers(5, 1), {5, 3}), y = there(numbers(5, 0), {5, 3});
  const BoundRun bound = s.bind({{"x", view(x)}}, {view(y)}).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 10; ++turn) EXPECT_FALSE(bound.run());
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(floats(y), affine_of(numbers(5, 1)));
}

TEST_F(Bound, SaysWhatIsWrongBeforeARun) {
  const Session s = affine();
  const OutputTensor x = there(numbers(2, 0), {2, 3}), y = there(numbers(2, 0), {2, 3}),
                     flat = there(numbers(2, 0), {6}), long_ = there(numbers(3, 0), {3, 3});
  auto why = [&](const Session::Inputs& in, const std::vector<TensorView>& out) {
    const auto bound = s.bind(in, out);
    return bound ? std::string() : bound.error().message;
  };
  EXPECT_EQ(why({{"x", view(x)}}, {view(y)}), "");
  EXPECT_THAT(why({{"z", view(x)}}, {view(y)}), HasSubstr("no input 'z'"));
  EXPECT_THAT(why({}, {view(y)}), HasSubstr("input 'x' is missing"));
  EXPECT_THAT(why({{"x", view(x)}}, {}), HasSubstr("0 output views given"));
  EXPECT_THAT(why({{"x", view(x)}}, {TensorView{nullptr, 0, {}, 0}}), HasSubstr("output 'y' has no memory"));
  EXPECT_THAT(why({{"x", view(flat)}}, {view(y)}), HasSubstr("input 'x' has rank 1, expected 2"));
  EXPECT_THAT(why({{"x", view(x)}}, {view(long_)}),
              HasSubstr("output 'y' has shape [3, 3], expected [2, 3]"));
  TensorView ints = view(x), wrong = view(x), cut = view(x);
  ints.type = 6;
  EXPECT_THAT(why({{"x", ints}}, {view(y)}), HasSubstr("has type int32, expected float32"));
  std::vector<float> here(6);
  wrong.data = here.data();
  EXPECT_THAT(why({{"x", wrong}}, {view(y)}), HasSubstr("none of a GPU's memory"));
  cut.dims = {2000, 3};
  EXPECT_THAT(why({{"x", cut}}, {view(y)}), HasSubstr("input 'x' is not memory of cuda:0"));
  EXPECT_THAT(affine("").bind({{"x", view(x)}}, {TensorView::of(here, {2, 3})}).error().message,
              HasSubstr("the session runs on the CPU"));
}

} // namespace
} // namespace tbx::test
