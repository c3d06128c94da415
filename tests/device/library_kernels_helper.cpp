#include "library_kernels_helper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "codegen/device_binary.h"
#include "device/cuda/cuda_device.h"
#include "device/fake/fake_device.h"
#include "extern_kernels/cuda/select.h"
#include "extern_kernels/library_kernel.h"
#include "plain_reference_helper.h"
#include "runtime/rehearsal.h"

namespace tbx::test {

using namespace extern_kernels;

namespace {

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

std::shared_ptr<device::Module> load_text(device::Device& device, const std::string& text,
                                          std::initializer_list<const char*> functions) {
  static std::mutex mutex;
  static std::map<std::string, std::string> binaries; // by text
  std::scoped_lock lock(mutex);
  std::string& binary = binaries[text];
  if (binary.empty()) {
    std::vector<codegen::EmittedKernel> kernels(functions.size());
    std::transform(functions.begin(), functions.end(), kernels.begin(), [](const char* name) {
      codegen::EmittedKernel kernel;
      kernel.function = name;
      return kernel;
    });
    kernels[0].text = text;
    binary = codegen::device_binary(kernels, device.properties());
  }
  return device.load(binary);
}

bool Chosen::by_library() const {
  return !notes.empty() && std::none_of(notes.begin(), notes.end(), [](const std::string& n) {
    return n.starts_with("plain loops") || n.starts_with("our own");
  });
}

Chosen expect_right(device::Device& device, const Problem& problem, const std::vector<Operand>& inputs,
                    const Operand& out) {
  const std::vector<OperandInfo> outs{info_of(out)};
  const Selection chosen = select_on(device, problem, infos_of(inputs), outs);
  expect_right(device, *chosen.kernel, problem, inputs, out);
  const auto* library = dynamic_cast<const LibraryKernel*>(chosen.kernel.get());
  return {chosen.chosen, library ? library->implementations() : std::vector<std::string>()};
}

void expect_right(device::Device& device, const extern_kernels::ExternKernel& kernel, const Problem& problem,
                  const std::vector<Operand>& inputs, const Operand& out) {
  const std::unique_ptr<device::Stream> stream = device.make_stream();
  std::vector<std::unique_ptr<device::Memory>> blocks;
  auto place = [&](const Operand& t) {
    blocks.push_back(device.allocate(t.bytes.size()));
    stream->upload(blocks.back()->data(), t.bytes.data(), t.bytes.size());
    return ref_of(t, blocks.back()->data());
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

  const Reference want = reference_of(problem, inputs, before);
  // A sum in f32 of operands as they are, and one rounding to the type of the result; half a step of it is
  // 2^-11 or 2^-8.
  const double relative = out.dtype == DType::f64    ? 1e-12
                          : out.dtype == DType::f32  ? 2e-5
                          : out.dtype == DType::f16  ? 1.5e-3
                          : out.dtype == DType::bf16 ? 1.2e-2
                                                     : 0;
  // What is beyond the range of float16 is rounded to infinity.
  auto overflows = [&](double got, double right) {
    return out.dtype == DType::f16 && std::isinf(got) && std::signbit(got) == std::signbit(right) &&
           std::fabs(right) >= 65520 * (1 - relative);
  };
  auto compare = [&](const char* when) {
    Operand got = out;
    stream->download(got.bytes.data(), result[0].data, got.bytes.size());
    stream->synchronize();
    const std::vector<double> values = values_of(got);
    for (size_t i = 0; i < values.size(); ++i)
      if (const double right = want.values[i];
          !(std::fabs(values[i] - right) <= relative * std::max(want.size, 1e-3)) && values[i] != right &&
          !(std::isnan(values[i]) && std::isnan(right)) && !overflows(values[i], right)) {
        ADD_FAILURE() << to_string(problem) << " by " << kernel.description() << ", " << when << ": "
                      << values[i] << " instead of " << right << " at " << i << " of " << values.size();
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
  end_case();
}

} // namespace tbx::test
