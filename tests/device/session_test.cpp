// Sessions on a device through the C++ and the C interface: tensors in memory of the device, and streams of
// the caller's. On the fake device.
#include "tensorbox/c.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tensorbox/device.h"
#include "tests/support/onnx_text.h"

namespace tbx::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DeviceSession : public testing::Test {
protected:
  void SetUp() override { setenv("TBX_FAKE_CUDA", "1", 1); }
  void TearDown() override { unsetenv("TBX_FAKE_CUDA"); }

  static std::string model() {
    return to_bytes(parse_graph("g (float[n, 2] x) => (float[n, 2] y) { d = Add (x, x) y = Neg (d) }"));
  }
  static Session session(const std::string& device = "cuda") {
    CompileOptions options;
    options.device = device;
    const std::string bytes = model();
    return Session::compile(std::as_bytes(std::span(bytes)), options).value();
  }
  static std::vector<float> floats(const OutputTensor& t) {
    const OutputTensor host = to_host(t).value();
    const auto values = host.values<float>();
    return {values.begin(), values.end()};
  }

  std::vector<float> x_ = {1, 2, 3, 4};
  TensorView on_host_ = TensorView::of(x_, {2, 2});
};

TEST_F(DeviceSession, TakesAndGivesMemoryOfTheDevice) {
  const Session s = session();
  EXPECT_EQ(s.device(), 0);
  const OutputTensor x = to_device(on_host_, "cuda").value();
  const TensorView view{x.data, x.type, x.dims, x.device};
  for (int turn = 0; turn < 4; ++turn) {
    const auto made = s.run({{"x", view}}, {TensorView{nullptr, 0, {}, 0}}).value();
    EXPECT_EQ(made[0].device, 0);
    EXPECT_THAT(floats(made[0]), ElementsAre(-2, -4, -6, -8));
    EXPECT_THROW(made[0].values<float>(), Exception);
    const OutputTensor y = to_device(on_host_, "cuda").value();
    s.run({{"x", view}}, {TensorView{y.data, y.type, y.dims, y.device}}).value();
    EXPECT_THAT(floats(y), ElementsAre(-2, -4, -6, -8));
    EXPECT_THAT(s.run({{"x", view}}).value()[0].values<float>(), ElementsAre(-2, -4, -6, -8));
  }
}

TEST_F(DeviceSession, RunsAsWorkOfAStream) {
  const Session s = session();
  const std::shared_ptr<void> stream = make_stream("cuda").value(), other = make_stream("cuda").value();
  for (int turn = 0; turn < 4; ++turn) {
    const OutputTensor y = s.run_async(stream.get(), {{"x", on_host_}}).value()[0];
    ASSERT_FALSE(use_on_stream(y, other.get()));
    const OutputTensor z =
        s.run_async(other.get(), {{"x", TensorView{y.data, y.type, y.dims, y.device}}}).value()[0];
    EXPECT_THAT(floats(z), ElementsAre(4, 8, 12, 16));
    EXPECT_FALSE(s.synchronize());
    const auto there = s.run_on(nullptr, {{"x", on_host_}}).value();
    EXPECT_THAT(there[0].values<float>(), ElementsAre(-2, -4, -6, -8));
  }
  EXPECT_FALSE(order_streams("cuda", stream.get(), other.get()));
  EXPECT_TRUE((mark_stream("cuda", stream.get()).value())() || !wait_for_stream("cuda", stream.get()));
}

TEST_F(DeviceSession, SaysWhatIsWrong) {
  const Session cpu = session(""), gpu = session();
  EXPECT_EQ(cpu.device(), kHost);
  const OutputTensor x = to_device(on_host_, "cuda").value(), far = to_device(on_host_, "cuda:1").value();
  auto view = [](const OutputTensor& t) { return TensorView{t.data, t.type, t.dims, t.device}; };
  EXPECT_THAT(cpu.run({{"x", view(x)}}).error().message, HasSubstr("the session runs on the CPU"));
  EXPECT_THAT(cpu.run_async(nullptr, {{"x", on_host_}}).error().message, HasSubstr("which has no streams"));
  EXPECT_THAT(gpu.run({{"x", view(far)}}).error().message, HasSubstr("the session runs on cuda:0"));
  TensorView wrong = on_host_;
  wrong.device = 0;
  EXPECT_THAT(gpu.run({{"x", wrong}}).error().message, HasSubstr("none of a GPU's memory"));
  std::vector<float> y(4);
  EXPECT_THAT(gpu.run_async(nullptr, {{"x", on_host_}}, {TensorView::of(y, {2, 2})}).error().message,
              HasSubstr("memory of the host"));
}

TEST_F(DeviceSession, SpeaksC) {
  const auto file = std::filesystem::temp_directory_path() / "tbx_device_session_test.onnx";
  std::ofstream(file, std::ios::binary) << model();
  tbx_error* error = nullptr;
  tbx_options options{};
  options.size = sizeof options;
  options.device = "cuda";
  tbx_session* s = tbx_compile(file.c_str(), &options, &error);
  ASSERT_NE(s, nullptr) << tbx_error_text(error);
  EXPECT_EQ(tbx_device(s), 0);
  const OutputTensor there = to_device(on_host_, "cuda").value();
  const int64_t dims[] = {2, 2};
  const tbx_tensor x{"x", TBX_FLOAT, 2, dims, there.data};
  const std::shared_ptr<void> stream = make_stream("cuda").value();
  const int32_t on_gpu[] = {0};
  tbx_run_options run{};
  run.size = sizeof run;
  run.input_devices = on_gpu;
  tbx_outputs* out = tbx_run_with(s, &x, 1, &run, &error);
  ASSERT_NE(out, nullptr) << tbx_error_text(error);
  EXPECT_EQ(tbx_outputs_device(out, 0), -1);
  EXPECT_EQ(static_cast<const float*>(tbx_outputs_at(out, 0).data)[3], -8);
  tbx_outputs_free(out);

  const OutputTensor y = to_device(on_host_, "cuda").value();
  const tbx_tensor into{"y", TBX_FLOAT, 2, dims, y.data};
  run.outputs = &into;
  run.output_devices = on_gpu;
  run.on_stream = run.async = 1;
  run.stream = stream.get();
  out = tbx_run_with(s, &x, 1, &run, &error);
  ASSERT_NE(out, nullptr) << tbx_error_text(error);
  EXPECT_EQ(tbx_outputs_device(out, 0), 0);
  EXPECT_EQ(tbx_synchronize(s, &error), 0);
  EXPECT_THAT(floats(y), ElementsAre(-2, -4, -6, -8));
  tbx_outputs_free(out);

  run.on_stream = 0;
  EXPECT_EQ(tbx_run_with(s, &x, 1, &run, &error), nullptr);
  EXPECT_THAT(tbx_error_text(error), HasSubstr("needs a stream"));
  tbx_error_free(error);
  tbx_session_free(s);
  std::filesystem::remove(file);
}

/// Sums of all rows so far.
std::string running_sum() {
  return to_bytes(parse_graph("g (float[n, 2] x, float[past, 2] rows) => (float[2] y, float[all, 2] longer) "
                              "{ longer = Concat <axis = 0> (rows, x) axes = Constant <value_ints = [0]> () "
                              "y = ReduceSum <keepdims = 0> (longer, axes) }"));
}

TEST_F(DeviceSession, KeepsState) {
  const std::string bytes = running_sum();
  for (const char* device : {"", "cuda"}) {
    CompileOptions options;
    options.device = device;
    options.state = {{"rows", "longer"}};
    options.state_capacity = 5;
    const Session s = Session::compile(std::as_bytes(std::span(bytes)), options).value();
    ASSERT_EQ(s.inputs().size(), 1u);
    ASSERT_EQ(s.outputs().size(), 1u);
    EXPECT_THAT(s.run({{"x", on_host_}}).value()[0].values<float>(), ElementsAre(4, 6));
    EXPECT_THAT(s.run({{"x", on_host_}}).value()[0].values<float>(), ElementsAre(8, 12));
    EXPECT_EQ(s.state_length(), 4);
    EXPECT_THAT(s.run({{"x", on_host_}}).error().message, HasSubstr("room for 5"));
    EXPECT_EQ(s.state_length(), 4);
    ASSERT_FALSE(s.set_state({{"rows", on_host_}}));
    EXPECT_EQ(s.state_length(), 2);
    EXPECT_THAT(s.run({{"x", on_host_}}).value()[0].values<float>(), ElementsAre(8, 12));
    ASSERT_FALSE(s.set_state({}));
    EXPECT_EQ(s.state_length(), 0);
    EXPECT_THAT(s.set_state({{"x", on_host_}})->message, HasSubstr("'x' is no state"));
    if (*device == 0) continue;
    const OutputTensor there = to_device(on_host_, "cuda").value();
    ASSERT_FALSE(s.set_state({{"rows", {there.data, there.type, there.dims, there.device}}}));
    EXPECT_THAT(s.run({{"x", on_host_}}).value()[0].values<float>(), ElementsAre(8, 12));
  }
}

TEST_F(DeviceSession, KeepsStateInC) {
  const std::string bytes = running_sum();
  const auto file =
      std::filesystem::temp_directory_path() / ("tbx-c-state-" + std::to_string(getpid()) + ".onnx");
  std::ofstream(file, std::ios::binary) << bytes;
  tbx_error* error = nullptr;
  tbx_options options{};
  options.size = sizeof options;
  options.state = "rows=longer";
  options.state_capacity = 4;
  tbx_session* s = tbx_compile(file.c_str(), &options, &error);
  ASSERT_NE(s, nullptr) << tbx_error_text(error);
  const int64_t dims[] = {2, 2};
  tbx_tensor x{"x", TBX_FLOAT, 2, dims, x_.data()};
  tbx_outputs* out = tbx_run(s, &x, 1, &error);
  ASSERT_NE(out, nullptr) << tbx_error_text(error);
  EXPECT_EQ(static_cast<const float*>(tbx_outputs_at(out, 0).data)[1], 6);
  EXPECT_EQ(tbx_state_length(s), 2);
  tbx_outputs_free(out);
  EXPECT_EQ(tbx_set_state(s, nullptr, 0, &error), 0);
  EXPECT_EQ(tbx_state_length(s), 0);
  x.name = "rows";
  EXPECT_EQ(tbx_set_state(s, &x, 1, &error), 0);
  EXPECT_EQ(tbx_state_length(s), 2);
  x.name = "y";
  EXPECT_EQ(tbx_set_state(s, &x, 1, &error), -1);
  EXPECT_THAT(tbx_error_text(error), HasSubstr("'y' is no state"));
  tbx_error_free(error);
  tbx_session_free(s);
  options.state_capacity = 1, options.state_limit = 5; // grows from the one to the other
  s = tbx_compile(file.c_str(), &options, &error);
  ASSERT_NE(s, nullptr) << tbx_error_text(error);
  x.name = "x";
  for (int turn = 1; turn <= 2; ++turn) {
    out = tbx_run(s, &x, 1, &error);
    ASSERT_NE(out, nullptr) << tbx_error_text(error);
    EXPECT_EQ(static_cast<const float*>(tbx_outputs_at(out, 0).data)[1], 6 * turn);
    tbx_outputs_free(out);
  }
  EXPECT_EQ(tbx_run(s, &x, 1, &error), nullptr);
  EXPECT_THAT(tbx_error_text(error), HasSubstr("limit is 5 (option state_limit)"));
  tbx_error_free(error);
  EXPECT_EQ(tbx_state_length(s), 4);
  tbx_session_free(s);
  options.state = "rows";
  EXPECT_EQ(tbx_compile(file.c_str(), &options, &error), nullptr);
  EXPECT_THAT(tbx_error_text(error), HasSubstr("INPUT=OUTPUT"));
  tbx_error_free(error);
  std::filesystem::remove(file);
}

} // namespace
} // namespace tbx::test
