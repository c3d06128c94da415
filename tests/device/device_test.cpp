// The device interface: on the fake device always, on a GPU where there is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>

#include "base/error.h"
#include "codegen/build_module.h"
#include "codegen/device_binary.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"
#include "device/fake/fake_device.h"

namespace tbx::test {
namespace {

using device::Device;

codegen::EmittedKernel kernel(const std::string& name, const std::string& parameters,
                              const std::string& body) {
  codegen::EmittedKernel k;
  k.function = name;
  k.text =
      "namespace tbx {\nextern \"C\" __global__ void " + name + "(" + parameters + ") {" + body + "}\n}\n";
  return k;
}

class DeviceTest : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
    if (GetParam() == std::string("fake")) {
      device_ = device::make_fake_device();
      return;
    }
    try {
      device_ = device::make_cuda_device(0);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }

  std::shared_ptr<device::Module> load(const std::vector<codegen::EmittedKernel>& kernels) {
    return device_->load(codegen::device_binary(kernels, device_->properties()));
  }

  std::shared_ptr<Device> device_;
};

constexpr int64_t kCount = 100003;

/// y[i] = x[i] + step
codegen::EmittedKernel add_kernel(const std::string& name = "add") {
  return kernel(name, "const i64* x, i64* y, i64 n, i64 step",
                "i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] + step;");
}

struct Launch {
  std::vector<void*> arguments;
  void *x, *y;
  int64_t n, step;
  Launch(void* x, void* y, int64_t n, int64_t step) : x(x), y(y), n(n), step(step) {
    arguments = {&this->x, &this->y, &this->n, &this->step};
  }
};

TEST_P(DeviceTest, CopiesRunsAndCopiesBack) {
  auto module = load({add_kernel()});
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{33}, kCount}) {
    std::vector<int64_t> host(n);
    std::iota(host.begin(), host.end(), 0);
    auto x = device_->allocate(n * 8), y = device_->allocate(n * 8), z = device_->allocate(n * 8);
    auto stream = device_->make_stream();
    stream->upload(x->data(), host.data(), n * 8);
    Launch l(x->data(), y->data(), n, 5);
    stream->launch(module->kernel("add"), {static_cast<uint32_t>(n / 128 + 1), 128}, l.arguments);
    stream->copy(z->data(), y->data(), n * 8);
    std::vector<int64_t> back(n, -1);
    stream->download(back.data(), z->data(), n * 8);
    stream->synchronize();
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(back[i], i + 5);
  }
}

TEST_P(DeviceTest, FillsBytes) {
  auto block = device_->allocate(1000);
  auto stream = device_->make_stream();
  std::vector<uint8_t> back(1000);
  stream->fill(block->data(), 7, 1000);
  stream->download(back.data(), block->data(), 1000);
  stream->synchronize();
  EXPECT_THAT(back, testing::Each(7));
}

TEST_P(DeviceTest, GraphReplaysAsTheStreamRan) {
  auto module = load({add_kernel()});
  auto x = device_->allocate(kCount * 8), staging = device_->allocate_staging(kCount * 8);
  auto* host = static_cast<int64_t*>(staging->data());
  std::fill_n(host, kCount, 1);
  auto stream = device_->make_stream();
  stream->upload(x->data(), host, kCount * 8);
  stream->synchronize();
  stream->begin_capture();
  {
    Launch l(x->data(), x->data(), kCount, 3); // parameters are copied: the launch object ends here
    stream->launch(module->kernel("add"), {1000, 128}, l.arguments);
    stream->launch(module->kernel("add"), {1000, 128}, l.arguments);
  }
  auto graph = stream->end_capture();
  EXPECT_EQ(graph->nodes(), 2u);
  for (int i = 0; i < 10; ++i) stream->launch(*graph);
  stream->download(host, x->data(), kCount * 8);
  stream->synchronize();
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(host[i], 1 + 10 * 2 * 3);
}

TEST_P(DeviceTest, CopiesOfAGraphMove) {
  std::vector<int64_t> host(kCount, 1), other(kCount, 2), back(kCount);
  const size_t bytes = kCount * 8;
  auto a = device_->allocate(bytes), b = device_->allocate(bytes), to = device_->allocate(bytes),
       out = device_->allocate(bytes);
  auto stream = device_->make_stream();
  stream->upload(a->data(), host.data(), bytes);
  stream->upload(b->data(), other.data(), bytes);
  stream->synchronize();
  stream->begin_capture();
  stream->copy(to->data(), a->data(), bytes);
  stream->copy(out->data(), to->data(), bytes);
  stream->copy(out->data(), to->data(), 0); // nothing to move
  auto graph = stream->end_capture();
  ASSERT_EQ(graph->copies(), 2u);
  auto result = [&] {
    stream->launch(*graph);
    stream->download(back.data(), out->data(), bytes);
    stream->synchronize();
    return back;
  };
  EXPECT_THAT(result(), testing::Each(1));
  graph->move_copy(0, to->data(), b->data(), bytes);
  EXPECT_THAT(result(), testing::Each(2));
  // A start has the addresses of its time.
  stream->launch(*graph);
  graph->move_copy(0, to->data(), a->data(), bytes);
  stream->download(back.data(), out->data(), bytes);
  stream->synchronize();
  EXPECT_THAT(back, testing::Each(2));
  EXPECT_THAT(result(), testing::Each(1));
  graph->move_copy(0, to->data(), b->data(), 8 * 3);
  result();
  EXPECT_THAT(std::vector<int64_t>(back.begin(), back.begin() + 4), testing::ElementsAre(2, 2, 2, 1));
}

TEST_P(DeviceTest, UploadsOfAGraphMove) {
  const size_t bytes = kCount * 8;
  auto one = device_->allocate_staging(bytes), two = device_->allocate_staging(bytes);
  auto fill = [](device::Memory& memory, int64_t value) {
    std::fill_n(static_cast<int64_t*>(memory.data()), kCount, value);
  };
  auto a = device_->allocate(bytes), b = device_->allocate(bytes);
  std::vector<int64_t> back(kCount);
  auto stream = device_->make_stream();
  stream->begin_capture();
  stream->upload(a->data(), one->data(), bytes);
  stream->upload(b->data(), one->data(), bytes);
  stream->upload(b->data(), one->data(), 0); // nothing to move
  auto graph = stream->end_capture();
  auto result = [&](device::Memory& of) {
    stream->download(back.data(), of.data(), bytes);
    stream->synchronize();
    return back;
  };
  fill(*one, 1), fill(*two, 2);
  stream->launch(*graph); // a start has the addresses of its time
  graph->move_upload(1, two->data());
  EXPECT_THAT(result(*b), testing::Each(1));
  stream->launch(*graph);
  EXPECT_THAT(result(*b), testing::Each(2));
  EXPECT_THAT(result(*a), testing::Each(1));
}

TEST_P(DeviceTest, LaunchesOfAGraphGetOtherArguments) {
  auto module = load({add_kernel(), add_kernel("other")});
  auto x = device_->allocate(kCount * 8), y = device_->allocate(kCount * 8);
  std::vector<int64_t> back(kCount);
  auto stream = device_->make_stream();
  stream->fill(x->data(), 0, kCount * 8);
  stream->fill(y->data(), 0, kCount * 8);
  stream->begin_capture();
  Launch to_x(x->data(), x->data(), kCount, 3), to_y(x->data(), y->data(), kCount, 1);
  stream->launch(module->kernel("add"), {1000, 128}, to_x.arguments);
  EXPECT_EQ(stream->recorded_launches(), 1u);
  stream->launch(module->kernel("add"), {1000, 128}, to_y.arguments);
  EXPECT_EQ(stream->recorded_launches(), 2u);
  auto graph = stream->end_capture();
  auto result = [&](device::Memory& of) {
    stream->download(back.data(), of.data(), kCount * 8);
    stream->synchronize();
    return back;
  };
  stream->launch(*graph); // x = 3, y = 4; a start has the arguments of its time
  stream->begin_update(*graph, 1);
  Launch half(x->data(), y->data(), kCount / 2, 10);
  stream->launch(module->kernel("add"), {500, 128}, half.arguments);
  device::GraphUpdate update = stream->end_update();
  EXPECT_EQ(update.given, 1u);
  EXPECT_EQ(update.refused, "");
  EXPECT_THAT(result(*y), testing::Each(4));
  stream->launch(*graph); // x = 6, the first half of y = 16
  EXPECT_THAT(result(*x), testing::Each(6));
  result(*y);
  EXPECT_EQ(back[0], 16);
  EXPECT_EQ(back[kCount / 2 - 1], 16);
  EXPECT_EQ(back[kCount / 2], 4);
  // Another kernel, and more launches than there are.
  stream->begin_update(*graph, 0);
  stream->launch(module->kernel("other"), {1000, 128}, to_x.arguments);
  EXPECT_EQ(stream->end_update().refused, "it starts another kernel");
  stream->begin_update(*graph, 1);
  stream->launch(module->kernel("add"), {1000, 128}, to_x.arguments);
  stream->launch(module->kernel("add"), {1000, 128}, to_x.arguments);
  EXPECT_EQ(stream->end_update().refused, "it starts more kernels");
}

TEST_P(DeviceTest, PiecesOfAGraphWaitForWhatTheyAreToldTo) {
  auto module = load({add_kernel()});
  const auto add = module->kernel("add");
  auto x = device_->allocate(kCount * 8), y = device_->allocate(kCount * 8),
       z = device_->allocate(kCount * 8);
  std::vector<int64_t> back(kCount);
  auto stream = device_->make_stream();
  auto launch = [&](const device::Memory& from, const device::Memory& to, int64_t step) {
    Launch l(from.data(), to.data(), kCount, step);
    stream->launch(add, {1000, 128}, l.arguments);
  };
  stream->begin_capture();
  stream->fill(x->data(), 0, kCount * 8); // before all pieces
  stream->begin_piece({});
  launch(*x, *y, 1);
  launch(*y, *y, 1); // a piece is in order: y = 2
  stream->begin_piece({});
  launch(*x, *z, 5); // beside it: z = 5
  const size_t first[] = {0}, both[] = {0, 1};
  stream->begin_piece(first); // nothing is recorded: who waits for it waits for the first
  const size_t empty[] = {2, 1};
  stream->begin_piece(both);
  launch(*y, *x, 10); // x = 12
  stream->begin_piece(empty);
  launch(*y, *y, 100); // y = 102, and the piece before it may read that
  stream->join_pieces();
  stream->copy(z->data(), y->data(), kCount * 8); // z = 102
  auto graph = stream->end_capture();
  std::set<int64_t> seen;
  for (int turn = 0; turn < 20; ++turn) {
    stream->launch(*graph);
    stream->download(back.data(), z->data(), kCount * 8);
    stream->synchronize();
    ASSERT_THAT(back, testing::Each(102));
    stream->download(back.data(), x->data(), kCount * 8);
    stream->synchronize();
    seen.insert(back[7]);
  }
  // An edge that is missing shows on the fake device, whose order is drawn anew for every start.
  if (GetParam() == std::string("fake")) {
    EXPECT_THAT(seen, testing::ElementsAre(12, 112));
  }
}

TEST_P(DeviceTest, AdoptsStreamsAndKnowsItsMemory) {
  auto stream = device_->make_stream();
  auto block = device_->allocate(1000);
  std::vector<uint8_t> back(1000);
  {
    auto same = device_->adopt_stream(stream->handle());
    EXPECT_EQ(same->handle(), stream->handle());
    same->fill(block->data(), 7, 1000);
  }
  auto ready = device_->make_event();
  EXPECT_TRUE(device_->is_reached(*ready));
  stream->download(back.data(), block->data(), 1000);
  stream->record(*ready);
  device_->wait(*ready);
  EXPECT_TRUE(device_->is_reached(*ready));
  EXPECT_THAT(back, testing::Each(7));
  device_->adopt_stream(nullptr)->synchronize();
  auto other = device_->make_stream();
  other->fill(block->data(), 9, 1000);
  other->download(back.data(), block->data(), 1000);
  device_->record_all(*ready);
  stream->wait(*ready);
  stream->synchronize();
  EXPECT_THAT(back, testing::Each(9));
  EXPECT_EQ(device_->defect_of(block->data(), 1000), "");
  EXPECT_EQ(device_->defect_of(back.data(), 0), "");
  EXPECT_THAT(device_->defect_of(back.data(), 1000), testing::HasSubstr("none of a GPU's memory"));
  EXPECT_THAT(device_->defect_of(static_cast<char*>(block->data()) + 8, 1 << 30),
              testing::HasSubstr("are left in its memory"));
}

TEST_P(DeviceTest, OneStreamWaitsForAnother) {
  auto module = load({add_kernel()});
  auto x = device_->allocate(kCount * 8);
  std::vector<int64_t> host(kCount, 1), back(kCount);
  auto first = device_->make_stream(), second = device_->make_stream();
  auto begin = device_->make_event(), ready = device_->make_event();
  first->record(*begin);
  first->upload(x->data(), host.data(), kCount * 8);
  Launch l(x->data(), x->data(), kCount, 41);
  first->launch(module->kernel("add"), {1000, 128}, l.arguments);
  first->record(*ready);
  second->wait(*ready);
  second->download(back.data(), x->data(), kCount * 8);
  second->synchronize();
  EXPECT_THAT(back, testing::Each(42));
  EXPECT_GE(device_->elapsed_ms(*begin, *ready), 0);
}

TEST_P(DeviceTest, ThreadsOfABlockMeet) {
  // Reverses within a block through shared memory, and sums a warp by shuffles.
  auto module =
      load({kernel("turn", "i64* x, i64* sums",
                   "__shared__ i64 row[256]; row[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];"
                   "__syncthreads(); i64 v = row[255 - threadIdx.x]; x[blockIdx.x * 256 + threadIdx.x] = v;"
                   "for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);"
                   "if (threadIdx.x % 32 == 0) sums[blockIdx.x * 8 + threadIdx.x / 32] = v;")});
  constexpr int kBlocks = 5;
  std::vector<int64_t> x(kBlocks * 256), sums(kBlocks * 8);
  std::iota(x.begin(), x.end(), 0);
  auto dx = device_->allocate(x.size() * 8), ds = device_->allocate(sums.size() * 8);
  auto stream = device_->make_stream();
  stream->upload(dx->data(), x.data(), x.size() * 8);
  void *px = dx->data(), *ps = ds->data();
  void* arguments[] = {&px, &ps};
  stream->launch(module->kernel("turn"), {kBlocks, 256}, arguments);
  stream->download(x.data(), dx->data(), x.size() * 8);
  stream->download(sums.data(), ds->data(), sums.size() * 8);
  stream->synchronize();
  for (int b = 0; b < kBlocks; ++b)
    for (int t = 0; t < 256; ++t) ASSERT_EQ(x[b * 256 + t], b * 256 + 255 - t);
  for (size_t w = 0; w < sums.size(); ++w)
    EXPECT_EQ(sums[w], std::accumulate(x.begin() + w * 32, x.begin() + w * 32 + 32, int64_t{0}));
}

TEST_P(DeviceTest, SaysWhatIsMissing) {
  auto module = load({add_kernel()});
  EXPECT_THAT([&] { module->kernel("subtract"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("no kernel subtract")));
  EXPECT_THROW(device_->allocate(size_t{1} << 50), Error);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, testing::Values("fake", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST(OpenDevice, RefusesOtherNames) {
  for (const char* name : {"", "cpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999999"})
    EXPECT_THROW(device::open(name), Error) << name;
}

TEST(FakeDevice, HostCannotTouchItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // other tests have started threads
  auto device = device::make_fake_device();
  auto block = device->allocate(64);
  EXPECT_DEATH(*static_cast<volatile char*>(block->data()) = 1, "");
}

TEST(FakeDevice, WritesAfterTheEndAreSeen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto device = device::make_fake_device();
        auto block = device->allocate(60);
        auto stream = device->make_stream();
        stream->fill(block->data(), 1, 61);
        stream->synchronize();
        block.reset();
      },
      "0 bytes after the end of a block of 60");
}

TEST(FakeDevice, NothingRunsBeforeSomebodyWaits) {
  auto device = device::make_fake_device();
  auto block = device->allocate(4);
  auto stream = device->make_stream();
  int32_t value = 0;
  stream->fill(block->data(), 1, 4);
  stream->download(&value, block->data(), 4);
  EXPECT_EQ(value, 0);
  stream->synchronize();
  EXPECT_EQ(value, 0x01010101);
}

TEST(FakeDevice, ThreadsThatWaitForEverAreReported) {
  if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  auto device = device::make_fake_device();
  auto module = device->load(codegen::device_binary(
      {kernel("stuck", "i64* x", "if (threadIdx.x % 32 < 16) __syncthreads(); else __shfl_sync(~0u, 1, 0);")},
      device->properties()));
  auto block = device->allocate(8);
  auto stream = device->make_stream();
  void* p = block->data();
  void* arguments[] = {&p};
  stream->launch(module->kernel("stuck"), {1, 64}, arguments);
  EXPECT_THAT([&] { stream->synchronize(); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("different barriers")));
}

} // namespace
} // namespace tbx::test
