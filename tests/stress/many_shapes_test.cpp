// What many_shapes.py does at length, in a program small enough for the thread sanitizer (preset tsan): eight
// threads run new sessions with many shapes at once, results are held against loops in double.
//
// $TBX_STRESS_RUNS: how many runs, each with other weights and shapes. They begin with $TBX_STRESS_FIRST.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <span>
#include <thread>

#include "codegen/build_module.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/onnx_text.h"

namespace tbx::test {
namespace {

constexpr int kThreads = 8, kShapes = 12;
constexpr int64_t kWidth = 20, kFew = 12, kMany = 72; // channels; of kMany Winograd's convolutions are made

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// y = relu(conv(x)) w + its rows, m = means of y's rows: a convolution, a product with a residual that is
/// read twice, a generated row kernel.
struct Model {
  int64_t channels;
  std::vector<float> filters; ///< [channels, channels, 3, 3]
  std::vector<float> weights; ///< [kWidth, kWidth]

  std::string bytes() const {
    return to_bytes(parse_graph(fmt::format(
        R"(stress (float[n, {0}, h, {1}] x) => (float[rows, {1}] y, float[rows] m)
        <int64[2] shape = {{-1, {1}}}, int64[1] axes = {{1}}, float[{0}, {0}, 3, 3] filters = {{{2}}},
         float[{1}, {1}] weights = {{{3}}}> {{
          c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, filters)
          r = Relu (c)
          f = Reshape (r, shape)
          p = MatMul (f, weights)
          y = Add (p, f)
          m = ReduceMean <keepdims = 0> (y, axes)
        }})",
        channels, kWidth, fmt::join(filters, ", "), fmt::join(weights, ", "))));
  }
};

struct Feed {
  std::vector<int64_t> dims;
  std::vector<float> x;
  std::vector<double> y, m; ///< what is expected
  /// Standard deviations of their errors where that of each term of a product has the term's size.
  std::vector<double> y_off, m_off;
};

std::vector<float> normal(int64_t n, double deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  std::vector<float> v(static_cast<size_t>(n));
  for (float& e : v) e = normal(random);
  return v;
}

Model random_model(int64_t channels, std::mt19937& random) {
  return {channels,
          normal(channels * channels * 9, 1 / std::sqrt(9.0 * static_cast<double>(channels)), random),
          normal(kWidth * kWidth, 1 / std::sqrt(static_cast<double>(kWidth)), random)};
}

/// relu(conv(x)), by rows of kWidth; or the squares of its terms added up.
std::vector<double> rows_of(const Model& model, const Feed& feed, bool squares) {
  const int64_t images = feed.dims[0], channels = model.channels, height = feed.dims[2];
  std::vector<double> rows;
  for (int64_t n = 0; n < images; ++n)
    for (int64_t o = 0; o < channels; ++o)
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < kWidth; ++j) {
          double sum = 0;
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t a = std::max<int64_t>(0, 1 - i); a < std::min<int64_t>(3, height + 1 - i); ++a)
              for (int64_t b = std::max<int64_t>(0, 1 - j); b < std::min<int64_t>(3, kWidth + 1 - j); ++b) {
                const double term =
                    double{feed.x[((n * channels + c) * height + i + a - 1) * kWidth + j + b - 1]} *
                    model.filters[((o * channels + c) * 3 + a) * 3 + b];
                sum += squares ? term * term : term;
              }
          rows.push_back(std::max(0.0, sum));
        }
  return rows;
}

Feed random_feed(const Model& model, int number, std::mt19937& random) {
  Feed feed;
  feed.dims = {1 + number % 3, model.channels, 1 + static_cast<int64_t>(random() % 12), kWidth};
  feed.x = normal(feed.dims[0] * feed.dims[1] * feed.dims[2] * kWidth, 1, random);
  const std::vector<double> f = rows_of(model, feed, false), variance = rows_of(model, feed, true);
  for (size_t row = 0; row < f.size(); row += kWidth) {
    double all = 0, all_off = 0;
    for (int64_t j = 0; j < kWidth; ++j) {
      double sum = f[row + j], off = 0;
      for (int64_t k = 0; k < kWidth; ++k) {
        const double weight = model.weights[k * kWidth + j], both = weight + (k == j ? 1 : 0);
        sum += f[row + k] * weight;
        off += variance[row + k] * both * both + f[row + k] * f[row + k] * weight * weight;
      }
      feed.y.push_back(sum);
      feed.y_off.push_back(std::sqrt(off));
      all += sum, all_off += std::sqrt(off);
    }
    feed.m.push_back(all / kWidth);
    feed.m_off.push_back(all_off / kWidth);
  }
  return feed;
}

/// `rounding`: how many of the standard deviations `off` a result may be off.
bool close(const OutputTensor& got, const std::vector<double>& want, const std::vector<double>& off,
           double rounding) {
  const auto values = got.values<float>();
  bool good = values.size() == want.size();
  for (size_t i = 0; good && i < want.size(); ++i)
    good = std::abs(values[i] - want[i]) <= 1e-4 * (1 + std::abs(want[i])) + rounding * off[i];
  return good;
}

bool has_winograd(const Session& session) {
  for (const KernelReport& step : session.explain())
    for (const std::string& line : step.decisions)
      if (line.starts_with("kernel: winograd_conv")) return true;
  return false;
}

/// How many results are wrong.
int one_run(int number, bool compile) {
  std::mt19937 random(static_cast<unsigned>(number));
  const Model model = random_model(number / 2 % 2 ? kMany : kFew, random);
  std::vector<Feed> feeds;
  for (int i = 0; i < kShapes; ++i) feeds.push_back(random_feed(model, i, random));

  CompileOptions options;
  options.keep_plans = false; // what is compiled is what is tested
  options.threads = 1 + number % 2;
  options.compile = compile;
  if (number / 4 % 2) {
    options.precision = "any"; // larger tiles
    options.disabled_passes = {"narrow_storage", "narrow_row_weights"};
  }
  // Both operands of both products may be bfloat16 (docs/precision.md): each is off by up to 2^-9 of itself,
  // evenly distributed at most. Among a billion results 6 deviations are met.
  const double rounding = options.precision == "any" ? 8 * std::sqrt(2.0 / 3) / 512 : 0;
  const std::string bytes = model.bytes();
  const int sessions = number % 3 == 0 ? kThreads / 2 : 1;
  std::vector<std::optional<Session>> made(static_cast<size_t>(sessions));
  std::atomic<int> wrong{0};
  std::barrier all_made(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t, seed = random()] {
      if (t < sessions)
        made[static_cast<size_t>(t)] = Session::compile(std::as_bytes(std::span(bytes)), options).value();
      std::vector<const Feed*> order;
      for (const Feed& feed : feeds) order.push_back(&feed);
      std::shuffle(order.begin(), order.end(), std::mt19937(seed));
      all_made.arrive_and_wait();
      const Session& session = *made[static_cast<size_t>(t % sessions)];
      for (const Feed* feed : order) {
        const auto out = session.run({{"x", TensorView::of(feed->x, feed->dims)}}).value();
        wrong +=
            !close(out[0], feed->y, feed->y_off, rounding) || !close(out[1], feed->m, feed->m_off, rounding);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(has_winograd(*made[0]), model.channels == kMany);
  return wrong;
}

class ManyShapes : public testing::TestWithParam<bool> {};

TEST_P(ManyShapes, NewSessionsOnEightThreads) {
  if (GetParam() && !codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  const int first = number_from("TBX_STRESS_FIRST", 0), runs = number_from("TBX_STRESS_RUNS", 4);
  for (int number = first; number < first + runs; ++number)
    EXPECT_EQ(one_run(number, GetParam()), 0) << "run " << number;
}

INSTANTIATE_TEST_SUITE_P(, ManyShapes, testing::Bool(),
                         [](const auto& p) { return p.param ? "Compiled" : "Evaluated"; });

} // namespace
} // namespace tbx::test
