// Sizes that decide what code there is: those of a Squeeze without axes, and of an If that squeezes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "../support/onnx_text.h"
#include "tensorbox/tensorbox.h"

namespace tbx::test {
namespace {

using Dims = std::vector<int64_t>;

/// A session, and how often something was compiled for it.
class Counted {
public:
  explicit Counted(const std::string& text) {
    CompileOptions options;
    options.compile = false;
    options.progress = [this](const std::string& stage, int, int) { compiled_ += stage == "schedule"; };
    const std::string bytes = to_bytes(parse_graph(text));
    session_ = Session::compile(std::as_bytes(std::span(bytes)), options).value();
  }

  /// Runs with x = 0, 1, 2, ... of this shape: the shape of y, whose elements are to be `factor` times every
  /// `step`-th column of x. How often that compiled is in `compiled`.
  Dims run(const Dims& shape, int64_t step = 1) {
    const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<float> x(static_cast<size_t>(n)), want;
    std::iota(x.begin(), x.end(), 0.0F);
    for (int64_t i = 0; i < n; ++i)
      if (i % shape.back() % step == 0) want.push_back(2 * x[static_cast<size_t>(i)]);
    const int before = compiled_;
    auto out = session_->run({{"x", TensorView::of(x, shape)}});
    compiled = compiled_ - before;
    if (!out.ok()) throw std::runtime_error(out.error().message);
    const OutputTensor& y = out.value().at(0);
    const std::span<const float> elements = y.values<float>();
    EXPECT_EQ(std::vector<float>(elements.begin(), elements.end()), want);
    return y.dims;
  }

  int compiled = 0;

private:
  int compiled_ = 0;
  std::optional<Session> session_;
};

const char* kSqueeze = "g (float[a, b, n] x) => (float[r] y) { s = Squeeze(x) y = Add(s, s) }";
const char* kSqueezeOfColumns = R"(g (float[a, n] x) => (float[r] y)
  <int64[1] zero = {0}, int64[1] end = {1000}, int64[1] one = {1}, int64[1] four = {4}> {
  c = Slice(x, zero, end, one, four) s = Squeeze(c) y = Add(s, s) })";
const char* kIf = R"(g (float[a, n] x) => (float[r] y)
  <int64[1] last = {1}, int64 place = {1}, int64 one = {1}> {
  shape = Shape(x) size = Gather(shape, place) is_one = Equal(size, one)
  s = If(is_one) <then_branch = t() => (float[q] t0) { t0 = Squeeze(x, last) },
                  else_branch = e() => (float[q, p] e0) { e0 = Identity(x) }>
  y = Add(s, s) })";

TEST(DecidingSizes, OtherLengthsBesideAnAxisOfOneCompileNothing) {
  Counted session(kSqueeze);
  EXPECT_EQ(session.run({2, 3, 4}), Dims({2, 3, 4}));
  EXPECT_EQ(session.compiled, 0);
  EXPECT_EQ(session.run({1, 3, 4}), Dims({3, 4}));
  EXPECT_EQ(session.compiled, 1);
  for (int again = 0; again < 2; ++again) EXPECT_EQ(session.run({1, 3, 4}), Dims({3, 4}));
  for (int64_t n : {2, 5, 7, 200}) {
    EXPECT_EQ(session.run({1, 3, n}), Dims({3, n}));
    EXPECT_EQ(session.run({1, n, 2}), Dims({n, 2}));
    EXPECT_EQ(session.run({n, 2, 3}), Dims({n, 2, 3}));
    EXPECT_EQ(session.compiled, 0);
  }
}

TEST(DecidingSizes, EachSetOfAxesOfOneIsCompiledOnce) {
  Counted session(kSqueeze);
  session.run({1, 3, 4});
  int compiled = 0;
  for (int64_t many : {2, 3, 6})
    for (int ones = 0; ones < 8; ++ones) {
      Dims shape, squeezed;
      for (int a = 0; a < 3; ++a) {
        shape.push_back(ones >> a & 1 ? 1 : many + a);
        if (shape.back() != 1) squeezed.push_back(shape.back());
      }
      EXPECT_EQ(session.run(shape), squeezed);
      compiled += session.compiled;
    }
  EXPECT_EQ(compiled, 6); // all but none of them, which comes first, and the first axis alone, from before
  EXPECT_EQ(session.run({1, 0, 5}), Dims({0, 5}));
  EXPECT_EQ(session.run({0, 1, 5}), Dims({0, 5}));
}

TEST(DecidingSizes, AComputedDimensionIsTakenForMoreThanOne) {
  Counted session(kSqueezeOfColumns);
  EXPECT_EQ(session.run({1, 20}, 4), Dims({5}));
  EXPECT_EQ(session.compiled, 1);
  for (int64_t n : {5, 8, 9, 33, 100}) {
    EXPECT_EQ(session.run({1, n}, 4), Dims({(n + 3) / 4}));
    EXPECT_EQ(session.compiled, 0) << n;
  }
  for (int64_t n : {4, 3, 1, 0}) // of one column and none: where 2 and more can be one, for that very size
    EXPECT_EQ(session.run({1, n}, 4), n == 0 ? Dims({0}) : Dims()) << n;
  for (int64_t n : {4, 2}) EXPECT_EQ(session.run({3, n}, 4), Dims({3})) << n;
  EXPECT_EQ(session.run({1, 21}, 4), Dims({6}));
  EXPECT_EQ(session.run({3, 21}, 4), Dims({3, 6}));
  EXPECT_EQ(session.compiled, 0);
}

TEST(DecidingSizes, AnIfThatDoesNotSqueezeIsCompiledForAllSuchSizes) {
  Counted session(kIf);
  EXPECT_EQ(session.run({3, 1}), Dims({3}));
  EXPECT_EQ(session.compiled, 0);
  EXPECT_EQ(session.run({3, 4}), Dims({3, 4}));
  EXPECT_EQ(session.compiled, 1);
  for (int64_t n : {2, 5, 9, 100}) {
    EXPECT_EQ(session.run({3, n}), Dims({3, n}));
    EXPECT_EQ(session.run({n, 7}), Dims({n, 7}));
    EXPECT_EQ(session.run({n, 1}), Dims({n}));
    EXPECT_EQ(session.compiled, 0) << n;
  }
  EXPECT_EQ(session.run({2, 0}), Dims({2, 0}));
  EXPECT_EQ(session.run({0, 6}), Dims({0, 6}));
}

} // namespace
} // namespace tbx::test
