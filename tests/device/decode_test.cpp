// Decoders that keep their caches, on the fake device: one recorded graph serves many lengths. What streams
// were asked for is counted; results are held against sessions of the CPU that are given the caches in every
// run.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>

#include "device/device.h"
#include "device/fake/fake_device.h"
#include "tensorbox/device.h"
#include "tests/support/onnx_text.h"

namespace tbx::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kHeads = 2, kWidth = 8, kColumns = kHeads * kWidth;

std::vector<float> numbers(int64_t count, int seed) {
  std::vector<float> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::sin(0.7f * static_cast<float>(i) + 1.3f * static_cast<float>(seed)) * 0.5f;
  return v;
}

std::string weight(const std::string& name, int seed) {
  std::string text = "float[16, 16] " + name + " = {";
  const std::vector<float> values = numbers(kColumns * kColumns, seed);
  for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  return text + "}";
}

/// Attention over all tokens so far with a mask of the caller's, two heads of 8.
std::string decoder() {
  const std::string heads = "hq = Reshape (mq, split) q = Transpose <perm = [0, 2, 1, 3]> (hq) "
                            "hk = Reshape (mk, split) nk = Transpose <perm = [0, 2, 1, 3]> (hk) "
                            "hv = Reshape (mv, split) nv = Transpose <perm = [0, 2, 1, 3]> (hv) ";
  return to_bytes(parse_graph(
      "g (float[1, n, 16] x, float[1, total] mask, float[1, 2, past, 8] pk, float[1, 2, past, 8] pv)"
      " => (float[1, n, 16] y, float[1, 2, all, 8] k, float[1, 2, all, 8] v) <" +
      weight("wq", 1) + ", " + weight("wk", 2) + ", " + weight("wv", 3) +
      "> { split = Constant <value_ints = [0, 0, 2, 8]> () flat = Constant <value_ints = [0, 0, 16]> () "
      "mq = MatMul (x, wq) mk = MatMul (x, wk) mv = MatMul (x, wv) " +
      heads +
      "k = Concat <axis = 2> (pk, nk) v = Concat <axis = 2> (pv, nv) kt = Transpose <perm = [0, 1, 3, 2]> "
      "(k) "
      "s = MatMul (q, kt) axes = Constant <value_ints = [1, 2]> () wide = Unsqueeze (mask, axes) "
      "m = Add (s, wide) p = Softmax <axis = -1> (m) o = MatMul (p, v) t = Transpose <perm = [0, 2, 1, 3]> "
      "(o) "
      "f = Reshape (t, flat) y = Add (x, f) }"));
}

/// The same with caches that callers hand over.
class Reference {
public:
  Reference() : session_(compile()) {}

  std::vector<float> step(const TensorView& x, const TensorView& mask) {
    const std::vector<int64_t> dims = {1, kHeads, length_, kWidth};
    const auto out = session_
                         .run({{"x", x},
                               {"mask", mask},
                               {"pk", TensorView::of(keys_, dims)},
                               {"pv", TensorView::of(values_, dims)}})
                         .value();
    auto take = [](const OutputTensor& t) {
      const auto values = t.values<float>();
      return std::vector<float>(values.begin(), values.end());
    };
    keys_ = take(out[1]), values_ = take(out[2]);
    length_ = out[1].dims[2];
    return take(out[0]);
  }
  void reset() {
    keys_.clear(), values_.clear();
    length_ = 0;
  }
  int64_t length() const { return length_; }

private:
  static Session compile() {
    CompileOptions options;
    options.compile = false;
    const std::string bytes = decoder();
    return Session::compile(std::as_bytes(std::span(bytes)), options).value();
  }
  Session session_;
  std::vector<float> keys_, values_;
  int64_t length_ = 0;
};

class Decode : public testing::Test {
protected:
  void SetUp() override { setenv("TBX_FAKE_CUDA", "1", 1); }
  void TearDown() override { unsetenv("TBX_FAKE_CUDA"); }

  static Session session(int64_t capacity, int64_t max_memory = 0,
                         std::function<void(const std::string&)> log = {}, int64_t limit = 0) {
    CompileOptions options;
    options.device = "cuda";
    options.log = std::move(log);
    options.state = {{"pk", "k"}, {"pv", "v"}};
    options.state_capacity = capacity;
    options.state_limit = limit;
    options.max_memory = max_memory;
    const std::string bytes = decoder();
    return Session::compile(std::as_bytes(std::span(bytes)), options).value();
  }
  static device::FakeCounts counts() { return device::counts_of(*device::open("cuda")); }

  /// A run of n tokens, against the reference.
  /// `there`: gets the inputs, on the device, each at an address of its own.
  static void step(const Session& s, Reference& reference, int64_t n,
                   std::vector<OutputTensor>* there = nullptr) {
    std::vector<float> x = numbers(n * kColumns, static_cast<int>(reference.length())),
                       mask = numbers(reference.length() + n, 77);
    const TensorView tokens = TensorView::of(x, {1, n, kColumns}),
                     masks = TensorView::of(mask, {1, reference.length() + n});
    Session::Inputs inputs{{"x", tokens}, {"mask", masks}};
    if (there)
      for (auto& [name, tensor] : inputs) {
        const OutputTensor& t = there->emplace_back(to_device(tensor, "cuda").value());
        tensor = {t.data, t.type, t.dims, t.device};
      }
    const OutputTensor y = s.run(inputs).value()[0];
    const auto got = y.values<float>();
    const std::vector<float> want = reference.step(tokens, masks);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-5) << i << " at length " << reference.length();
    ASSERT_EQ(s.state_length(), reference.length());
  }
};

TEST_F(Decode, OneGraphServesManyLengths) {
  const Session s = session(600);
  Reference reference;
  step(s, reference, 7);
  step(s, reference, 1);
  step(s, reference, 1);
  const device::FakeCounts before = counts();
  for (int i = 0; i < 40; ++i) step(s, reference, 1);
  const device::FakeCounts after = counts();
  EXPECT_EQ(after.recorded, before.recorded);
  EXPECT_EQ(after.launches, before.launches); // all of them are in the graph
  EXPECT_EQ(after.started - before.started, 40u);
  const size_t moved = after.updated - before.updated;
  EXPECT_GE(moved, 40u);
  EXPECT_LE(moved, 40u * 8u); // both caches, the mask, attention; not the products of the layer
}

TEST_F(Decode, SaysWhenAGraphIsRecordedAgain) {
  std::vector<std::string> said;
  const Session s = session(600, 0, [&](const std::string& text) {
    if (text.find("recorded again") != std::string::npos) said.push_back(text);
  });
  auto counted = [&](const std::vector<KernelReport>& reports) {
    std::vector<std::string> lines;
    for (const KernelReport& r : reports)
      for (const std::string& d : r.decisions)
        if (d.find("recorded again") != std::string::npos) lines.push_back(d);
    return lines;
  };
  Reference reference;
  step(s, reference, 7);
  for (int i = 0; i < 4; ++i) step(s, reference, 1);
  EXPECT_THAT(counted(s.explain()), testing::IsEmpty());
  const device::FakeCounts before = counts();
  device::refuse_updates(*device::open("cuda"), true);
  for (int i = 0; i < 3; ++i) step(s, reference, 1); // the first has its sizes from the run before
  device::refuse_updates(*device::open("cuda"), false);
  EXPECT_EQ(counts().recorded - before.recorded, 2u);
  for (int i = 0; i < 3; ++i) step(s, reference, 1);
  EXPECT_EQ(counts().recorded - before.recorded, 2u);
  EXPECT_THAT(counted(s.explain()),
              testing::ElementsAre("graph recorded again 2 times: the fake device refuses the change"));
  EXPECT_THAT(said, testing::ElementsAre(HasSubstr("the fake device refuses the change")));
}

TEST_F(Decode, PlacesGrowByPowersOfTwo) {
  const Session s = session(1100);
  Reference reference;
  const device::FakeCounts before = counts();
  for (int64_t prompt : {250, 255, 510}) { // 256, 512 and 1,024 tokens are passed by single steps
    step(s, reference, prompt);
    for (int i = 0; i < 8; ++i) step(s, reference, 1);
  }
  EXPECT_EQ(reference.length(), 1039);
  const device::FakeCounts after = counts();
  // Places for 256, 512, 1,024 and 2,048 tokens.
  EXPECT_LE(after.recorded - before.recorded, 4u);
  EXPECT_GE(after.started - before.started, 24u - 2 * 4u);
}

TEST_F(Decode, LengthsJumpAndComeAgain) {
  const Session s = session(300);
  Reference reference;
  for (int turn = 0; turn < 4; ++turn) {
    for (int64_t n : {3, 1, 1, 0, 1, 2, 1, 1, 2, 1}) step(s, reference, n);
    ASSERT_FALSE(s.set_state({}));
    reference.reset();
  }
  while (reference.length() < 300) step(s, reference, 30);
  std::vector<float> x = numbers(kColumns, 1), mask = numbers(301, 1);
  EXPECT_THAT(s.run({{"x", TensorView::of(x, {1, 1, kColumns})}, {"mask", TensorView::of(mask, {1, 301})}})
                  .error()
                  .message,
              HasSubstr("room for 300"));
  EXPECT_EQ(s.state_length(), 300);
}

TEST_F(Decode, TakesMemoryOfTheDevice) {
  const Session s = session(100);
  Reference reference;
  std::vector<OutputTensor> there;
  for (int i = 0; i < 20; ++i) step(s, reference, i % 7 == 3 ? 2 : 1, &there);
  const device::FakeCounts before = counts();
  for (int i = 0; i < 5; ++i) step(s, reference, 1, &there);
  EXPECT_EQ(counts().recorded, before.recorded);
}

/// Runs that nobody waits for have inputs on the host, which the caller uses again at once, and outputs that
/// it keeps: each at an address of its own.
TEST_F(Decode, RunsInARowNeedNoOtherGraph) {
  const Session s = session(100);
  Reference reference;
  const auto device = device::open("cuda");
  const auto stream = device->make_stream();
  std::vector<std::vector<float>> wanted;
  std::vector<OutputTensor> made;
  std::vector<float> x, mask;
  device::FakeCounts before;
  for (int i = 0; i < 24; ++i) {
    if (i == 4) before = counts();
    x = numbers(kColumns, i), mask = numbers(i + 1, 77);
    const TensorView tokens = TensorView::of(x, {1, 1, kColumns}), masks = TensorView::of(mask, {1, i + 1});
    wanted.push_back(reference.step(tokens, masks));
    made.push_back(s.run_async(stream->handle(), {{"x", tokens}, {"mask", masks}}).value()[0]);
    std::fill(x.begin(), x.end(), 7.0f), std::fill(mask.begin(), mask.end(), 7.0f);
  }
  EXPECT_EQ(counts().recorded, before.recorded);
  EXPECT_EQ(counts().launches, before.launches);
  EXPECT_EQ(counts().started - before.started, 20u);
  ASSERT_FALSE(s.synchronize());
  std::vector<float> got(kColumns);
  for (size_t i = 0; i < made.size(); ++i) {
    stream->download(got.data(), made[i].data, kColumns * sizeof(float));
    stream->synchronize();
    for (size_t d = 0; d < got.size(); ++d) ASSERT_NEAR(got[d], wanted[i][d], 2e-5) << "step " << i;
  }
}

/// Graphs of the memory that a state has left are not started again; between two moves nothing is recorded
/// or allocated.
TEST_F(Decode, GraphsFollowStatesThatMove) {
  const Session s = session(4, 0, {}, 2000);
  Reference reference;
  for (int64_t length = 1; length <= 70; ++length) step(s, reference, 1); // rooms for 4, 8, ..., 128
  device::FakeCounts before = counts();
  for (int64_t length = 71; length <= 128; ++length) step(s, reference, 1);
  EXPECT_EQ(counts().recorded, before.recorded);
  EXPECT_EQ(counts().allocated, before.allocated);
  EXPECT_EQ(counts().started - before.started, 58u);
  step(s, reference, 1); // to another place
  EXPECT_GT(counts().allocated, before.allocated);
  for (int64_t n : {1, 1, 0, 300, 1, 1, 1}) step(s, reference, n);
  before = counts();
  for (int i = 0; i < 60; ++i) step(s, reference, 1);
  EXPECT_LE(counts().recorded - before.recorded, 1u);
  EXPECT_GE(counts().started - before.started, 58u);
}

/// The memory that runs under way are at is not given back.
TEST_F(Decode, StatesMoveBetweenRunsInARow) {
  const Session s = session(0);
  const Session small = session(2, 0, {}, 100);
  const auto device = device::open("cuda");
  const auto stream = device->make_stream();
  for (const Session* each : {&s, &small}) {
    Reference reference;
    std::vector<std::vector<float>> wanted;
    std::vector<OutputTensor> made;
    std::vector<float> x, mask;
    for (int i = 0; i < 40; ++i) {
      x = numbers(kColumns, i), mask = numbers(i + 1, 77);
      const TensorView tokens = TensorView::of(x, {1, 1, kColumns}), masks = TensorView::of(mask, {1, i + 1});
      wanted.push_back(reference.step(tokens, masks));
      made.push_back(each->run_async(stream->handle(), {{"x", tokens}, {"mask", masks}}).value()[0]);
      std::fill(x.begin(), x.end(), 7.0f), std::fill(mask.begin(), mask.end(), 7.0f);
    }
    ASSERT_FALSE(each->synchronize());
    std::vector<float> got(kColumns);
    for (size_t i = 0; i < made.size(); ++i) {
      stream->download(got.data(), made[i].data, kColumns * sizeof(float));
      stream->synchronize();
      for (size_t d = 0; d < got.size(); ++d) ASSERT_NEAR(got[d], wanted[i][d], 2e-5) << "step " << i;
    }
  }
}

TEST_F(Decode, OneGraphServesGroupedHeads) {
  const std::string bytes = to_bytes(
      parse_text("<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1]>\n"
                 "g (float[1, n, 32] q, float[1, n, 16] kn, float[1, n, 16] vn, int32[1] last, int32 total,"
                 " float[1, 1, past, 16] pk, float[1, 1, past, 16] pv)"
                 " => (float[1, n, 32] y, float[1, 1, all, 16] k, float[1, 1, all, 16] v) "
                 "{ y, k, v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (q, kn, "
                 "vn, pk, pv, last, total) }"));
  CompileOptions options;
  options.device = "cuda";
  options.state = {{"pk", "k"}, {"pv", "v"}};
  options.state_capacity = 64;
  const Session s = Session::compile(std::as_bytes(std::span(bytes)), options).value();
  std::vector<float> keys, values;
  device::FakeCounts before;
  for (int t = 0; t < 30; ++t) {
    if (t == 4) before = counts();
    std::vector<float> q = numbers(32, t), k = numbers(16, t + 100), v = numbers(16, t + 200);
    std::vector<int32_t> last = {t}, total = {t + 1};
    const auto out = s.run({{"q", TensorView::of(q, {1, 1, 32})},
                            {"kn", TensorView::of(k, {1, 1, 16})},
                            {"vn", TensorView::of(v, {1, 1, 16})},
                            {"last", TensorView::of(last, {1})},
                            {"total", TensorView::of(total, {})}})
                         .value();
    keys.insert(keys.end(), k.begin(), k.end()), values.insert(values.end(), v.begin(), v.end());
    const auto got = out[0].values<float>();
    for (int head = 0; head < 2; ++head) {
      std::vector<double> weights(static_cast<size_t>(t) + 1), want(16, 0);
      double sum = 0;
      for (size_t i = 0; i < weights.size(); ++i) {
        double score = 0;
        for (size_t d = 0; d < 16; ++d) score += double{q[head * 16 + d]} * keys[i * 16 + d];
        sum += weights[i] = std::exp(score / 4);
      }
      for (size_t i = 0; i < weights.size(); ++i)
        for (size_t d = 0; d < 16; ++d) want[d] += weights[i] / sum * values[i * 16 + d];
      for (size_t d = 0; d < 16; ++d) ASSERT_NEAR(got[head * 16 + d], want[d], 1e-5) << t;
    }
  }
  EXPECT_EQ(counts().recorded, before.recorded);
  EXPECT_EQ(counts().launches, before.launches);
  EXPECT_EQ(counts().started - before.started, 26u);
}

TEST_F(Decode, SessionsTakeTurns) {
  const Session a = session(64), b = session(64);
  Reference of_a, of_b;
  for (int i = 0; i < 12; ++i) {
    step(a, of_a, 1);
    if (i % 3 == 0) step(b, of_b, 2);
  }
}

TEST_F(Decode, SizesMayDependOnDataBeside) {
  const std::string bytes = to_bytes(parse_graph(
      "g (float[n, 2] x, float[past, 2] rows) => (float[2] y, int64[2, found] places, float[all, 2] longer) "
      "{ longer = Concat <axis = 0> (rows, x) axes = Constant <value_ints = [0]> () "
      "y = ReduceSum <keepdims = 0> (longer, axes) places = NonZero (x) }"));
  CompileOptions options;
  options.device = "cuda";
  options.state = {{"rows", "longer"}};
  options.state_capacity = 8;
  const Session s = Session::compile(std::as_bytes(std::span(bytes)), options).value();
  std::vector<float> x = {1, 0, 3, 4};
  for (int t = 1; t <= 4; ++t) {
    const auto out = s.run({{"x", TensorView::of(x, {2, 2})}}).value();
    EXPECT_THAT(out[0].values<float>(), testing::ElementsAre(4.0f * t, 4.0f * t));
    EXPECT_THAT(out[1].dims, testing::ElementsAre(2, 3));
  }
  EXPECT_EQ(s.state_length(), 8);
}

TEST_F(Decode, StateCountsAsMemory) {
  const int64_t state = 2 * kHeads * kWidth * 4 * 1000; // bytes of keys and values
  const std::string bytes = decoder();
  CompileOptions options;
  options.state = {{"pk", "k"}, {"pv", "v"}};
  options.state_capacity = 1000;
  for (const char* device : {"", "cuda"}) {
    options.device = device;
    options.max_memory = state - 1;
    const auto refused = Session::compile(std::as_bytes(std::span(bytes)), options);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("the state takes " + std::to_string(state) + " bytes of memory, the limit is " +
                          std::to_string(state - 1)));
    EXPECT_THAT(refused.error().message, HasSubstr("state_capacity"));
    options.max_memory = state + 100; // of which a run needs more
    const Session s = Session::compile(std::as_bytes(std::span(bytes)), options).value();
    std::vector<float> x = numbers(4 * kColumns, 1), mask = numbers(4, 1);
    const Session::Inputs inputs = {{"x", TensorView::of(x, {1, 4, kColumns})},
                                    {"mask", TensorView::of(mask, {1, 4})}};
    EXPECT_THAT(s.run(inputs).error().message,
                HasSubstr(std::to_string(state) + " of them are for the state"));
    // Where places to grow in are more than there is, each length has its own.
    const std::string needed = s.run(inputs).error().message;
    options.max_memory = std::stoll(needed.substr(needed.find("needs ") + 6)) + 512;
    const Session enough = Session::compile(std::as_bytes(std::span(bytes)), options).value();
    for (int64_t length : {4, 8}) {
      const auto done = enough.run({inputs[0], {"mask", TensorView::of(x, {1, length})}});
      EXPECT_TRUE(done) << done.error().message;
    }
  }
}

} // namespace
} // namespace tbx::test
