#include "library_kernels_helper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/float_formats.h"
#include "codegen/device_binary.h"
#include "device/cuda/cuda_device.h"
#include "device/fake/fake_device.h"

#include "extern_kernels/cuda/select.h"
#include "extern_kernels/library_kernel.h"
#include "runtime/rehearsal.h"

namespace tbx::test {

using namespace extern_kernels;

namespace {

int64_t count(const Dims& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

double load(DType type, const char* at) {
  auto as = [&]<class T>(T v) {
    std::memcpy(&v, at, sizeof v);
    return v;
  };
  switch (type) {
  case DType::f32: return as(float{});
  case DType::f64: return as(double{});
  case DType::i8: return as(int8_t{});
  case DType::u8: return as(uint8_t{});
  case DType::i32: return as(int32_t{});
  case DType::i64: return static_cast<double>(as(int64_t{}));
  default: return decode_float(type, as(uint16_t{}));
  }
}

void store(DType type, double value, char* at) {
  auto as = [&](auto v) { std::memcpy(at, &v, sizeof v); };
  switch (type) {
  case DType::f32: return as(static_cast<float>(value));
  case DType::f64: return as(value);
  case DType::i8: return as(static_cast<int8_t>(value));
  case DType::u8: return as(static_cast<uint8_t>(value));
  case DType::i32: return as(static_cast<int32_t>(value));
  case DType::i64: return as(static_cast<int64_t>(value));
  default: return as(static_cast<uint16_t>(encode_float(type, static_cast<float>(value))));
  }
}

TensorRef ref(const Operand& t, void* data) {
  return t.present() ? TensorRef{data, t.dtype, t.sizes, t.strides} : TensorRef{};
}

OperandInfo info(const Operand& t) {
  OperandInfo i{t.dtype, t.sizes, t.strides, nullptr};
  if (t.constant) {
    Tensor c = Tensor::make(t.dtype, t.sizes);
    if (!t.bytes.empty()) std::memcpy(const_cast<std::byte*>(c.data), t.bytes.data(), t.bytes.size());
    i.constant = std::make_shared<const Tensor>(std::move(c));
  }
  return i;
}

/// The same values as double: what the plain loops compute with.
Operand widened(const Operand& t) {
  if (!t.present() || is_integer(t.dtype)) return t;
  Operand w{DType::f64, t.sizes, t.strides, std::vector<char>(t.bytes.size() / size_of(t.dtype) * 8)};
  const std::vector<double> v = values_of(t);
  if (!v.empty()) std::memcpy(w.bytes.data(), v.data(), w.bytes.size());
  return w;
}

const std::vector<PostOp>& post_ops(const Problem& problem) {
  static const std::vector<PostOp> none;
  if (const auto* p = std::get_if<MatMulProblem>(&problem)) return p->post_ops;
  if (const auto* p = std::get_if<ConvProblem>(&problem)) return p->post_ops;
  return none;
}

/// Operand of an addition in place, which lies where the result will; -1: none.
int in_place(const Problem& problem) {
  for (const PostOp& op : post_ops(problem))
    if (op.kind == PostOp::sum) return op.operand;
  return -1;
}

/// By the plain loops of the CPU. Integer problems keep their type.
std::vector<double> expected(const Problem& problem, const std::vector<Operand>& inputs, const Operand& out) {
  std::vector<Operand> in;
  for (const Operand& t : inputs) in.push_back(widened(t));
  Operand result = widened(out);
  std::vector<OperandInfo> infos, outs{info(result)};
  std::vector<TensorRef> refs, out_refs{ref(result, result.bytes.data())};
  for (Operand& t : in) {
    infos.push_back(info(t));
    refs.push_back(ref(t, t.bytes.data()));
  }
  const std::unique_ptr<ExternKernel> kernel =
      extern_kernels::select(problem, infos, outs, Kernels::plain).kernel;
  kernel->run({refs, out_refs});
  return values_of(result);
}

} // namespace

std::shared_ptr<device::Device> open_for_test(const std::string& name, std::string& why) {
  if (name == "fake") return device::make_fake_device();
  try {
    return device::make_cuda_device(0);
  } catch (const Error& e) {
    why = e.what();
    return nullptr;
  }
}

std::vector<int> channels_last(size_t rank) {
  std::vector<int> order{0};
  for (size_t d = 2; d < rank; ++d) order.push_back(static_cast<int>(d));
  order.push_back(1);
  return order;
}

std::shared_ptr<device::Module> load_text(device::Device& device, const std::string& text,
                                          const std::string& function) {
  codegen::EmittedKernel kernel;
  kernel.function = function, kernel.text = text;
  return device.load(codegen::device_binary({kernel}, device.properties()));
}

Operand random_operand(DType dtype, Dims sizes, std::vector<int> order) {
  static std::mt19937 rng(20261122);
  Operand t{dtype, sizes, Dims(sizes.size()), {}};
  if (order.empty()) {
    order.resize(sizes.size());
    std::iota(order.begin(), order.end(), 0);
  }
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    t.strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  const int64_t n = count(sizes), bytes = size_of(dtype);
  t.bytes.resize(static_cast<size_t>(n * bytes));
  std::uniform_real_distribution<double> real(-1, 1);
  std::uniform_int_distribution<int> integer(dtype == DType::u8 ? 0 : -9, 9);
  for (int64_t i = 0; i < n; ++i)
    store(dtype, is_float(dtype) ? real(rng) : integer(rng), t.bytes.data() + i * bytes);
  return t;
}

std::vector<double> values_of(const Operand& t) {
  const int64_t bytes = size_of(t.dtype);
  std::vector<double> v(t.bytes.size() / static_cast<size_t>(bytes));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = load(t.dtype, t.bytes.data() + static_cast<int64_t>(i) * bytes);
  return v;
}

bool Chosen::by_library() const {
  return !notes.empty() && std::none_of(notes.begin(), notes.end(), [](const std::string& n) {
    return n.starts_with("plain loops") || n.starts_with("our own");
  });
}

Chosen expect_right(device::Device& device, const Problem& problem, const std::vector<Operand>& inputs,
                    const Operand& out) {
  std::vector<OperandInfo> outs{info(out)};
  const Selection chosen = select_on(device, problem, infos_of(inputs), outs);
  expect_right(device, *chosen.kernel, problem, inputs, out);
  const auto* library = dynamic_cast<const LibraryKernel*>(chosen.kernel.get());
  return {chosen.chosen, library ? library->implementations() : std::vector<std::string>()};
}

std::vector<OperandInfo> infos_of(const std::vector<Operand>& operands) {
  std::vector<OperandInfo> infos;
  for (const Operand& t : operands) infos.push_back(info(t));
  return infos;
}

void expect_right(device::Device& device, const extern_kernels::ExternKernel& kernel, const Problem& problem,
                  const std::vector<Operand>& inputs, const Operand& out) {
  const std::unique_ptr<device::Stream> stream = device.make_stream();
  std::vector<std::unique_ptr<device::Memory>> blocks;
  auto place = [&](const Operand& t) {
    blocks.push_back(device.allocate(t.bytes.size()));
    stream->upload(blocks.back()->data(), t.bytes.data(), t.bytes.size());
    return ref(t, blocks.back()->data());
  };
  std::vector<TensorRef> in;
  for (const Operand& t : inputs) in.push_back(t.present() ? place(t) : TensorRef{});
  const int old = in_place(problem);
  const Operand& before = old >= 0 ? inputs[old] : out;
  std::vector<TensorRef> result{place(before)};
  if (old >= 0) in[old] = result[0];
  // As in a plan: sizes are known, addresses are not.
  auto unplaced = [](std::vector<TensorRef> refs) {
    for (TensorRef& r : refs) r.data = nullptr;
    return refs;
  };
  const auto workspace =
      device.allocate(static_cast<size_t>(kernel.workspace_bytes(unplaced(in), unplaced(result))));
  const RunArgs args{in, result, nullptr, workspace->data(), stream.get()};
  if (kernel.can_rehearse()) { // by two at a time, as it comes
    const runtime::RehearsedCall call{&kernel, in, result, workspace->data()};
    runtime::rehearse({call, call});
    Operand still = before;
    stream->download(still.bytes.data(), result[0].data, still.bytes.size());
    stream->synchronize();
    EXPECT_EQ(still.bytes, before.bytes) << kernel.description() << " writes while it is rehearsed";
  }

  const std::vector<double> want = expected(problem, inputs, before);
  double size = 0;
  for (double v : want) size = std::max(size, std::fabs(v));
  // A sum in f32 of operands as they are, and one rounding to the type of the result; half a step of it is
  // 2^-11 or 2^-8.
  const double relative = out.dtype == DType::f64    ? 1e-12
                          : out.dtype == DType::f32  ? 2e-5
                          : out.dtype == DType::f16  ? 1.5e-3
                          : out.dtype == DType::bf16 ? 1.2e-2
                                                     : 0;
  auto compare = [&](const char* when) {
    Operand got = out;
    stream->download(got.bytes.data(), result[0].data, got.bytes.size());
    stream->synchronize();
    const std::vector<double> values = values_of(got);
    for (size_t i = 0; i < values.size(); ++i)
      if (!(std::fabs(values[i] - want[i]) <= relative * std::max(size, 1e-3)) &&
          !(std::isnan(values[i]) && std::isnan(want[i]))) {
        ADD_FAILURE() << to_string(problem) << " by " << kernel.description() << ", " << when << ": "
                      << values[i] << " instead of " << want[i] << " at " << i << " of " << values.size();
        return;
      }
  };
  kernel.run(args);
  compare("first run");
  stream->upload(result[0].data, before.bytes.data(), before.bytes.size());
  stream->synchronize();
  stream->begin_capture();
  kernel.run(args);
  const auto graph = stream->end_capture();
  stream->launch(*graph);
  compare("from a graph");
}

} // namespace tbx::test
