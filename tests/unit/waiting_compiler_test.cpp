// Runs while a variant is compiled by a compiler that waits: TBX_CXX is a script that stands still on a fifo
// before it calls the real compiler. Who holds a lock across a compilation, of a specialiser, of build_module
// or of the kernel cache, keeps the other runs from their end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../support/onnx_text.h"
#include "../support/temporary_folder.h"
#include "codegen/build_module.h"
#include "codegen/compiler.h"
#include "tensorbox/tensorbox.h"

namespace tbx::test {
namespace {

namespace fs = std::filesystem;

/// Of an input: float32 of these sizes, or integers, or a condition.
struct Given {
  std::string name;
  std::vector<int64_t> dims;
  std::vector<int64_t> integers;
  std::optional<bool> condition;
};
using Feed = std::vector<Given>;

/// A model of which runs make variants, and runs of kinds that are compiled, that are not, and one more that
/// is not where there can be three kinds.
struct Case {
  const char* name;
  const char* graph;
  Feed seen, fresh;
  std::optional<Feed> another;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

Given floats(std::string name, std::vector<int64_t> dims) {
  return {std::move(name), std::move(dims), {}, std::nullopt};
}
Given integer(std::string name, int64_t value) { return {std::move(name), {1}, {value}, std::nullopt}; }
Given condition(bool value) { return {"c", {}, {}, value}; }

const Case kCases[] = {
    {"ShapesOfAModel",
     "g (float[1, 1, h, 4] x, float[2, 2] b) => (float[m, k, 2, 2] y) { s = Constant<value = int64[4] {1, 1, "
     "2, "
     "2}>() \n r = Resize<antialias = 1, mode = \"linear\">(x, , , s) \n y = Add(r, b) }",
     {floats("x", {1, 1, 8, 4}), floats("b", {2, 2})},
     {floats("x", {1, 1, 6, 4}), floats("b", {2, 2})},
     Feed{floats("x", {1, 1, 10, 4}), floats("b", {2, 2})}},
    {"ElementsOfAnInput",
     "g (float[2, 3, 4] x, int64[1] axes) => (float[a, b, c] y) { y = ReduceSum<keepdims = 1>(x, axes) }",
     {floats("x", {2, 3, 4}), integer("axes", 0)},
     {floats("x", {2, 3, 4}), integer("axes", 1)},
     Feed{floats("x", {2, 3, 4}), integer("axes", 2)}},
    {"BodyOfAnIf",
     "g (float[2, 3, 4] x, int64[1] axes, bool c) => (float[i, j, k] y) { y = If(c) <then_branch = t () => "
     "(float[a, b, d] p) { q = Exp(x) \n p = ReduceSum<keepdims = 1>(q, axes) }, else_branch = e () => "
     "(float[2, 3, 4] n) { n = Neg(x) }> }",
     {floats("x", {2, 3, 4}), integer("axes", 0), condition(true)},
     {floats("x", {2, 3, 4}), integer("axes", 1), condition(true)},
     Feed{floats("x", {2, 3, 4}), integer("axes", 2), condition(true)}},
    {"BodyOfALoop",
     "g (float[2, 3, 4] x, int64[1] axes, int64 n) => (float[2, 3, 4] y) { t = Constant<value = bool {1}>() "
     "\n "
     "y = Loop(n, t, x) <body = b (int64 i, bool u, float[2, 3, 4] v) => (bool w, float[2, 3, 4] z) { w = "
     "Identity(u) \n s = ReduceSum<keepdims = 1>(v, axes) \n z = Add(x, s) }> }",
     {floats("x", {2, 3, 4}), integer("axes", 0), {"n", {}, {2}, std::nullopt}},
     {floats("x", {2, 3, 4}), integer("axes", 1), {"n", {}, {2}, std::nullopt}},
     Feed{floats("x", {2, 3, 4}), integer("axes", 2), {"n", {}, {2}, std::nullopt}}},
    {"WeakerAssumption",
     "g (float[n] a, float[m] b) => (float[k] y) { y = Add(a, b) }",
     {floats("a", {3}), floats("b", {3})},
     {floats("a", {1}), floats("b", {4})},
     std::nullopt},
};

/// Any other model, with kernels of its own.
constexpr const char* kOther = "g (float[n] x) => (float[n] y) { e = Exp(x) \n y = Softmax<axis = 0>(e) }";

Session session_of(const char* graph, const CompileOptions& options) {
  const std::string model = to_bytes(parse_graph(graph));
  return Session::compile(std::as_bytes(std::span(model)), options).value();
}

std::vector<std::vector<float>> run(const Session& session, Feed feed) {
  std::vector<std::vector<float>> values(feed.size());
  Session::Inputs inputs;
  for (size_t i = 0; i < feed.size(); ++i) {
    Given& given = feed[i];
    if (given.condition) {
      std::span only(&*given.condition, 1);
      inputs.emplace_back(given.name, TensorView::of(only, given.dims));
    } else if (!given.integers.empty()) {
      inputs.emplace_back(given.name, TensorView::of(given.integers, given.dims));
    } else {
      size_t n = 1;
      for (int64_t d : given.dims) n *= static_cast<size_t>(d);
      for (size_t k = 0; k < n; ++k) values[i].push_back(static_cast<float>(k * 37 % 101) / 50 - 1);
      inputs.emplace_back(given.name, TensorView::of(values[i], given.dims));
    }
  }
  std::vector<std::vector<float>> results;
  for (const OutputTensor& t : session.run(inputs).value()) {
    const auto y = t.values<float>();
    results.emplace_back(y.begin(), y.end());
  }
  return results;
}

/// What a thread of its own does. Who waits for it waits for a bounded time.
class Task {
public:
  explicit Task(std::function<void()> work) : done_(std::async(std::launch::async, std::move(work))) {}

  bool ends() { return done_.wait_for(std::chrono::minutes(1)) == std::future_status::ready; }
  /// No deadlock is left to the test's time limit: the destructor of a future would wait for ever.
  void end() {
    if (!ends()) {
      std::fputs("a run does not end though the compiler does\n", stderr);
      std::_Exit(1);
    }
    done_.get();
  }

private:
  std::future<void> done_;
};

class WaitingCompiler : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    const std::string real = codegen::find_compiler({});
    if (real.empty()) GTEST_SKIP() << "no compiler";
    folder_ = temporary_folder("tbx-compiler");
    const std::string in = folder_.string();
    ASSERT_EQ(mkfifo((in + "/fifo").c_str(), 0600), 0);
    fifo_ = open((in + "/fifo").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fifo_, 0);
    std::ofstream(in + "/c++") << "#!/bin/sh\necho started >> " << in << "/starts\n"
                               << "if mv " << in << "/hold " << in << "/held 2>/dev/null; then\n"
                               << "  read -r go_on < " << in << "/fifo\nfi\nexec " << real << " \"$@\"\n";
    fs::permissions(in + "/c++", fs::perms::owner_all);
    if (const char* cxx = std::getenv("TBX_CXX")) before_ = cxx;
    setenv("TBX_CXX", (in + "/c++").c_str(), 1);
    options_.cache_dir = in + "/kernels";
    options_.threads = 2;
  }
  void TearDown() override {
    if (folder_.empty()) return;
    if (before_)
      setenv("TBX_CXX", before_->c_str(), 1);
    else
      unsetenv("TBX_CXX");
    if (fifo_ >= 0) close(fifo_);
    fs::remove_all(folder_);
  }

  /// The next compiler that starts waits, those behind it do not.
  void hold_next() { std::ofstream(folder_ / "hold") << "\n"; }
  /// A compiler waits by now.
  bool waits() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!fs::exists(folder_ / "held")) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  void go_on() {
    fs::remove(folder_ / "hold");
    ASSERT_EQ(write(fifo_, "\n", 1), 1);
  }
  int starts() {
    std::ifstream in(folder_ / "starts");
    int n = 0;
    for (std::string line; std::getline(in, line);) ++n;
    return n;
  }

  fs::path folder_;
  int fifo_ = -1;
  std::optional<std::string> before_;
  CompileOptions options_;
};

TEST_P(WaitingCompiler, RunsOfOtherKindsGoOn) {
  const Case& c = GetParam();
  CompileOptions aside = options_;
  aside.cache_dir += "-of-the-reference";
  const Session reference = session_of(c.graph, aside), session = session_of(c.graph, options_);
  const auto seen = run(reference, c.seen), fresh = run(reference, c.fresh);
  ASSERT_NE(seen, fresh);
  EXPECT_EQ(run(session, c.seen), seen);

  hold_next();
  Task first([&] { EXPECT_EQ(run(session, c.fresh), fresh); });
  EXPECT_TRUE(waits()) << "nothing is compiled for the new kind";
  Task again([&] { EXPECT_EQ(run(session, c.seen), seen); });
  Task report([&] { EXPECT_FALSE(session.explain().empty()); });
  Task cached([&] { EXPECT_EQ(run(session_of(c.graph, options_), c.seen), seen); });
  Task elsewhere([&] { EXPECT_FALSE(run(session_of(kOther, options_), {floats("x", {5})}).empty()); });
  Task another([&] {
    if (c.another) {
      EXPECT_EQ(run(session, *c.another), run(reference, *c.another));
    }
  });
  EXPECT_TRUE(again.ends()) << "a run of a compiled kind waits for the compiler";
  EXPECT_TRUE(report.ends()) << "explain waits for the compiler";
  EXPECT_TRUE(cached.ends())
      << "a session with all its kernels in the cache waits for another one's compiler";
  EXPECT_TRUE(elsewhere.ends()) << "one compilation waits for another";
  EXPECT_TRUE(another.ends()) << "a run of a third kind waits for the compiler of the second";
  go_on();
  for (Task* task : {&first, &again, &report, &cached, &elsewhere, &another}) task->end();
}

TEST_P(WaitingCompiler, RunsOfOneKindWaitForOneCompilation) {
  const Case& c = GetParam();
  CompileOptions aside = options_;
  aside.cache_dir += "-of-the-reference";
  const Session reference = session_of(c.graph, aside), session = session_of(c.graph, options_);
  run(reference, c.seen);
  const int before = starts();
  const auto fresh = run(reference, c.fresh);
  const int needed = starts() - before;
  ASSERT_GT(needed, 0);
  run(session, c.seen);

  const int all_before = starts();
  hold_next();
  auto work = [&] { EXPECT_EQ(run(session, c.fresh), fresh); };
  Task first(work);
  EXPECT_TRUE(waits());
  Task second(work), third(work);
  // Would they compile, they would begin by now. What makes the test pass is the count alone.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  go_on();
  for (Task* task : {&first, &second, &third}) task->end();
  EXPECT_EQ(starts() - all_before, needed);
}

INSTANTIATE_TEST_SUITE_P(, WaitingCompiler, testing::ValuesIn(kCases),
                         [](const auto& p) { return std::string(p.param.name); });

} // namespace
} // namespace tbx::test
