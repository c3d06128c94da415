#include "extern_kernels/cuda/loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "base/error.h"
#include "device/cuda/nvrtc.h"

namespace tbx::extern_kernels::cuda {

namespace {

const char* const kArguments =
#define TBX_ARGUMENTS(...) #__VA_ARGS__
#include "extern_kernels/cuda/loops_arguments.inc"
#undef TBX_ARGUMENTS
    ;

const char* const kLoops =
#include "extern_kernels/cuda/loops.inc"
    ;

constexpr int kRank = 12;

} // namespace

std::string loops_arguments() { return kArguments; }

const std::string& compiled(const std::string& text, const std::string& architecture) {
  struct Code {
    std::mutex mutex; ///< others are compiled meanwhile
    std::string binary;
  };
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, Code> all;
  Code* code = nullptr;
  {
    std::scoped_lock lock(mutex);
    code = &all[{text, architecture}];
  }
  std::scoped_lock lock(code->mutex);
  if (code->binary.empty()) code->binary = device::cuda::compile_cached(text, architecture);
  return code->binary;
}

std::shared_ptr<device::Module> loaded(device::Device& device, const std::string& text) {
  struct Loaded {
    std::mutex mutex; ///< others are loaded meanwhile
    std::weak_ptr<device::Module> module;
  };
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, Loaded> all; // by the number of the GPU
  Loaded* mine = nullptr;
  {
    std::scoped_lock lock(mutex);
    mine = &all[{device.properties().number, text}];
  }
  std::scoped_lock lock(mine->mutex);
  std::shared_ptr<device::Module> module = mine->module.lock();
  if (!module) {
    module = device.load(compiled(text, device.properties().architecture));
    mine->module = module;
  }
  return module;
}

std::string loops_text(Loop kernel, DType a, DType b, DType c, int64_t wide) {
  return fmt::format("#define KERNEL {}\n#define A {}\n#define B {}\n#define C {}\n#define WIDE {}\n{}\n{}",
                     static_cast<int>(kernel), static_cast<int>(a), static_cast<int>(b), static_cast<int>(c),
                     wide, kArguments, kLoops);
}

LoopKernel::LoopKernel(device::Device& device, Loop kernel, DType a, DType b, DType c, int64_t wide)
    : properties_(device.properties()) {
  module_ = loaded(device, loops_text(kernel, a, b, c, wide));
  constexpr const char* kNames[] = {"product", "convolution", "finishing", "rows", "attention"};
  kernel_ = module_->kernel(kNames[static_cast<int>(kernel)]);
}

void LoopKernel::launch(device::Stream& stream, const device::LaunchShape& shape,
                        std::span<void* const> arguments) const {
  stream.launch(kernel_, shape, arguments);
}

device::LaunchShape shape_of_elements(int64_t elements, const device::Properties& properties) {
  constexpr int64_t kThreads = 128, kBlocksPerMultiprocessor = 64;
  device::LaunchShape shape;
  shape.threads = kThreads;
  shape.blocks = static_cast<uint32_t>(std::clamp<int64_t>(
      (elements + kThreads - 1) / kThreads, 1, properties.multiprocessors * kBlocksPerMultiprocessor));
  return shape;
}

int architecture_number(const device::Properties& properties) {
  const std::string_view a = properties.architecture;
  int number = 0;
  if (a.starts_with("sm_")) std::from_chars(a.data() + 3, a.data() + a.size(), number);
  return number;
}

bool has_clusters(const device::Properties& properties) { return architecture_number(properties) >= 90; }

bool begins_early(const device::Properties& properties) {
  return properties.starts_early && architecture_number(properties) > 0;
}

View view_of(const TensorRef& t, std::span<const int64_t> sizes) {
  View v;
  v.data = t.data;
  v.type = static_cast<int>(t.dtype);
  const size_t missing = sizes.size() - std::min(sizes.size(), t.sizes.size());
  for (size_t d = 0; d < t.sizes.size(); ++d) v.strides[d + missing] = t.sizes[d] == 1 ? 0 : t.strides[d];
  return v;
}

HeadsView heads_view_of(const TensorRef& t, std::span<const int64_t> sizes) {
  const View all = view_of(t, sizes);
  HeadsView v{all.data, {}, all.type};
  std::copy_n(all.strides, std::size(v.strides), v.strides);
  return v;
}

Divisor divisor_of(int64_t d) {
  Divisor found;
  while ((int64_t{1} << found.shift) < d) ++found.shift;
  const auto over = static_cast<uint64_t>((int64_t{1} << found.shift) - d);
  found.factor = static_cast<unsigned>((over << 32) / static_cast<uint64_t>(d) + 1);
  return found;
}

PostSteps steps_of(const std::vector<PostOp>& ops, std::span<const TensorRef> inputs,
                   std::span<const int64_t> sizes) {
  PostSteps steps;
  steps.count = static_cast<int>(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    steps.steps[i].kind = ops[i].kind;
    steps.steps[i].alpha = ops[i].alpha;
    steps.steps[i].beta = ops[i].beta;
    if (ops[i].operand >= 0) steps.steps[i].operand = view_of(inputs[ops[i].operand], sizes);
  }
  return steps;
}

std::string loops_refuse(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs,
                         const std::vector<PostOp>& post_ops) {
  auto known = [](DType t) {
    return is_half(t) || t == DType::f32 || t == DType::f64 || (is_integer(t) && bits_of(t) >= 8);
  };
  for (const OperandInfo& i : inputs)
    if (i.dtype != DType::undefined && !known(i.dtype)) return fmt::format("{} operands", name_of(i.dtype));
  if (!known(outputs[0].dtype)) return fmt::format("a result of {}", name_of(outputs[0].dtype));
  if (outputs[0].sizes.size() > kRank) return fmt::format("rank above {}", kRank);
  constexpr size_t kMost = std::size(PostSteps{}.steps);
  if (post_ops.size() > kMost) return fmt::format("more than {} post-operations", kMost);
  return {};
}

} // namespace tbx::extern_kernels::cuda
