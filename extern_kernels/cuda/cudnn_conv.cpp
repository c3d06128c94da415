// Convolutions by cuDNN: in any order of memory, with addition, bias and Relu in the same kernel. A
// transposed convolution is the gradient of one; what comes behind it is done by a kernel of ours in place.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "extern_kernels/cuda/conv_weights.h"
#include "extern_kernels/cuda/dnn_plan.h"
#include "extern_kernels/cuda/epilogue.h"
#include "extern_kernels/cuda/gathered_conv.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/notes.h"
#include "extern_kernels/cuda/plain.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

enum Id : int64_t { kX = 1, kW, kB, kZ, kY };

/// cudnnDataType_t; -1: none of ours.
int type_of(DType t) {
  switch (t) {
  case DType::f32: return dnn::kF32;
  case DType::f16: return dnn::kF16;
  case DType::bf16: return dnn::kBf16;
  default: return -1;
  }
}

/// A tensor as cuDNN wants it: two spatial dimensions at least, and strides of dimensions of size 1 as if
/// dense.
struct Described {
  std::vector<int64_t> sizes, strides;
  int align = 16;
  auto
  operator<=>(const Described&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

/// `data`: nullptr where it is not known yet.
Described described(std::span<const int64_t> sizes, std::span<const int64_t> strides, const void* data) {
  Described d{{sizes.begin(), sizes.end()}, {strides.begin(), strides.end()}, alignment_of(data)};
  const bool last = d.sizes[1] > 1 && d.strides[1] == 1;
  if (d.sizes.size() == 3) {
    d.sizes.insert(d.sizes.begin() + 2, 1);
    d.strides.insert(d.strides.begin() + 2, 1);
  }
  // Innermost first: the order in which a dense tensor of this kind lies.
  std::vector<size_t> order;
  for (size_t k = d.sizes.size() - 1; k > 1; --k) order.push_back(k);
  order.insert(last ? order.begin() : order.end(), 1);
  order.push_back(0);
  int64_t step = 1;
  for (size_t k : order) {
    if (d.sizes[k] == 1) d.strides[k] = step;
    step = std::max(step, d.sizes[k] * d.strides[k]);
  }
  return d;
}

/// All that a plan depends on.
struct Key {
  Described x, w, y, z;
  bool bias = false, residual = false;
  int bias_align = 16;
  Activation activation = Activation::none;
  dnn::Graph::Convolution form;
  int type = dnn::kF32;
  dnn::Arithmetic arithmetic = dnn::Arithmetic::free;
  auto operator<=>(const Key&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

std::shared_ptr<dnn::Graph> conv_graph(const Key& key) {
  auto graph = std::make_shared<dnn::Graph>();
  auto tensor = [&](Id id, const Described& d) -> dnn::Object& {
    return graph->tensor(id, key.type, d.sizes, d.strides, d.align);
  };
  dnn::Object &x = tensor(kX, key.x), &w = tensor(kW, key.w), &y = tensor(kY, key.y);
  // In this order the library has kernels ready: sums, addition, bias, activation.
  int left = key.residual + key.bias + (key.activation == Activation::relu);
  auto next = [&]() -> dnn::Object& {
    return --left < 0 ? y : graph->inner(dnn::kF32, key.y.sizes, key.y.strides);
  };
  dnn::Object* sums = &next();
  graph->convolution(key.form, x, w, *sums);
  auto add = [&](dnn::Object& operand) {
    dnn::Object& to = next();
    graph->pointwise(dnn::kAdd, *sums, &operand, to);
    sums = &to;
  };
  if (key.residual) add(tensor(kZ, key.z));
  if (key.bias) {
    std::vector<int64_t> sizes(key.y.sizes.size(), 1), strides(sizes);
    sizes[1] = key.y.sizes[1];
    strides[0] = sizes[1];
    if (key.y.strides[1] == 1) std::fill(strides.begin() + 2, strides.end(), sizes[1]);
    add(graph->tensor(kB, key.type, sizes, strides, key.bias_align));
  }
  if (key.activation == Activation::relu) graph->pointwise(dnn::kReluForward, *sums, nullptr, y);
  return graph;
}

class CudnnConv final : public LibraryKernel {
public:
  CudnnConv(device::Device& device, const ConvProblem& p, std::span<const OperandInfo> inputs,
            std::span<const OperandInfo> outputs)
      : p_(p), type_(inputs[0].dtype), context_(device::context_of(device)),
        plain_(make_cuda_conv, device, p, inputs, outputs), weights_(device, inputs[1]), gathered_(device, p),
        version_(dnn::version()) {}

  std::string description() const override { return fmt::format("{} {}", version_, to_string(Problem(p_))); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    const Call call = make_call(inputs, outputs[0], false);
    if (!call.found.plans) return 0;
    int64_t bytes = call.found.plans->workspace_bytes();
    if (call.gathered)
      bytes =
          std::max(bytes, call.gathered->row_bytes + static_cast<int64_t>(call.product->workspace_bytes()));
    return bytes;
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    const Call call = make_call(args.inputs, args.outputs[0], true);
    if (!call.found.plans) return run_plain(args, call.found.refusal);
    const TensorRef& y = args.outputs[0];
    dnn::Plans::Addresses at;
    at.of = {{kX, args.inputs[0].data}, {kW, call.weights}, {kY, y.data}};
    if (call.key.bias) at.of.emplace_back(kB, call.bias);
    if (call.key.residual) at.of.emplace_back(kZ, args.inputs[call.epilogue.residual].data);
    at.workspace = args.workspace;
    at.workspace_bytes = workspace_bytes(args.inputs, args.outputs);
    at.hot = {bytes_of(args.inputs[0])};
    if (call.key.residual && call.epilogue.in_place) {
      at.in_place = kY;
      at.in_place_bytes = bytes_of(y).size;
    }
    if (call.gathered) {
      at.other = [&](const dnn::Plans::Addresses& there) { run_gathered(args, call, there); };
      at.other_name = "windows gathered into rows and cuBLASLt";
    }
    if (!call.found.plans->run(*args.stream, at)) return run_plain(args, kLargerWorkspace);
    notes_.add(
        fmt::format("[{}]: {}", fmt::join(args.inputs[0].sizes, " x "), call.found.plans->description()));
    if (p_.transposed) finish(args, call.epilogue);
  }

  int64_t packed_bytes() const override { return weights_.bytes(); }
  std::vector<std::string> implementations() const override { return notes_.all(); }
  bool measures() const override { return measuring(); }

private:
  void run_plain(const RunArgs& args, const std::string& why) const {
    notes_.add("plain loops: " + why);
    plain_.get().run(args);
  }

  struct Call {
    Key key;
    Epilogue epilogue;
    const void *weights = nullptr, *bias = nullptr;
    dnn::Found found;
    std::optional<GatheredConv::Call> gathered;
    std::shared_ptr<GemmPlan> product; ///< of what is gathered
  };

  /// Where the plans of `call` would write.
  void run_gathered(const RunArgs& args, const Call& call, const dnn::Plans::Addresses& there) const {
    const TensorRef& x = args.inputs[0];
    gathered_.gather(*args.stream, x, args.inputs[1].sizes, args.outputs[0], args.workspace);
    // A bias of zeros is one for cuDNN alone.
    GemmAddresses at{args.workspace, call.weights, call.epilogue.bias >= 0 ? call.bias : nullptr, nullptr,
                     nullptr};
    for (const auto& [id, address] : there.of) {
      if (id == kY) at.c = const_cast<void*>(address);
      if (id == kZ) at.residual = address;
    }
    const int64_t rows = call.gathered->row_bytes;
    const bool done = call.product->run(*args.stream, at, 1, static_cast<char*>(args.workspace) + rows,
                                        static_cast<size_t>(there.workspace_bytes - rows));
    if (!done) throw_backend_error("{}", kLargerWorkspace);
  }

  /// `placed`: the addresses of a run count, not only the sizes.
  Call make_call(std::span<const TensorRef> inputs, const TensorRef& y, bool placed) const {
    static auto* cache = new dnn::PlanCache<Key>;
    Call call;
    std::vector<OperandInfo> infos = plain_.inputs();
    for (size_t i = 0; i < infos.size(); ++i)
      infos[i].sizes.assign(inputs[i].sizes.begin(), inputs[i].sizes.end());
    call.epilogue = epilogue_of(p_.post_ops, p_.has_bias ? 2 : -1, infos,
                                {y.dtype, {y.sizes.begin(), y.sizes.end()}, {}, nullptr}, 1);
    call.found.refusal = call.epilogue.refusal;
    if (!call.found.refusal.empty()) return call;
    const TensorRef &x = inputs[0], &w = inputs[1];
    if (x.numel() == 0 || w.numel() == 0) {
      call.found.refusal = "an empty operand";
      return call;
    }
    std::vector<int64_t> strides(w.strides.begin(), w.strides.end());
    call.weights = w.data;
    if (x.strides[1] == 1 && x.sizes[1] > 1)
      if (const void* packed = weights_.channels_last(strides)) call.weights = packed;
    Key& key = call.key;
    auto at = [&](const void* data) { return placed ? data : nullptr; };
    key.x = described(x.sizes, x.strides, at(x.data));
    key.w = described(w.sizes, strides, at(call.weights));
    key.y = described(y.sizes, y.strides, at(y.data));
    if (!p_.transposed) {
      key.residual = call.epilogue.residual >= 0;
      key.activation = call.epilogue.activation;
      const bool given = call.epilogue.bias >= 0;
      key.bias = given || key.residual || key.activation == Activation::relu; // addresses are not known yet
      if (key.bias) {
        call.bias = given ? inputs[call.epilogue.bias].data : zeros(y.sizes[1]);
        key.bias_align = alignment_of(at(call.bias));
      }
      if (key.residual) {
        const TensorRef& z = inputs[call.epilogue.residual];
        key.z = described(z.sizes, z.strides, at(z.data));
      }
    }
    key.form = {p_.transposed, p_.strides, p_.dilations, p_.pads_begin, p_.pads_end};
    if (key.form.strides.size() == 1) {
      for (auto* v : {&key.form.strides, &key.form.dilations}) v->insert(v->begin(), 1);
      for (auto* v : {&key.form.pads_begin, &key.form.pads_end}) v->insert(v->begin(), 0);
    }
    key.type = type_of(type_);
    if (type_ == DType::f32)
      key.arithmetic = p_.precision == Precision::any ? dnn::Arithmetic::tf32 : dnn::Arithmetic::strict;
    call.gathered = gathered_.call(x, w.sizes, strides, y, call.epilogue,
                                   key.residual ? &inputs[call.epilogue.residual] : nullptr);
    if (call.gathered) {
      Gemm& g = call.gathered->gemm;
      g.align_b = alignment_of(at(call.weights));
      g.align_c = alignment_of(at(y.data));
      if (key.residual)
        g.align_c = std::min(g.align_c, alignment_of(at(inputs[call.epilogue.residual].data)));
      call.product = product_of(g);
      if (!call.product) call.gathered.reset();
    }
    dnn::PlanWish wish;
    wish.arithmetic = key.arithmetic;
    call.found = cache->get(context_, key, wish, [&] { return conv_graph(key); });
    return call;
  }

  /// Null where cuBLASLt has no algorithm, or is missing: cuDNN computes without it.
  std::shared_ptr<GemmPlan> product_of(const Gemm& gemm) const {
    try {
      auto plan = plan_of(context_, gemm);
      return plan->empty() ? nullptr : plan;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::internal) throw;
      return nullptr;
    }
  }

  /// The bias of one that has none, but an addition or activation: the library has these behind a bias only.
  const void* zeros(int64_t channels) const {
    std::call_once(zeros_once_, [&] {
      const std::vector<char> values(static_cast<size_t>(channels * size_of(type_)), 0);
      device::Device& device = plain_.device();
      zeros_ = device.allocate(values.size());
      const auto stream = device.make_stream();
      stream->upload(zeros_->data(), values.data(), values.size());
      stream->synchronize();
    });
    return zeros_->data();
  }

  /// Bias, addition and activation of a transposed convolution.
  void finish(const RunArgs& args, const Epilogue& e) const {
    const TensorRef& y = args.outputs[0];
    std::vector<PostOp> ops;
    std::vector<TensorRef> operands;
    std::vector<int64_t> sizes(y.sizes.size(), 1), strides(y.sizes.size(), 0);
    auto add = [&](const TensorRef& operand) {
      ops.push_back({PostOp::add, 0, 0, static_cast<int>(operands.size())});
      operands.push_back(operand);
    };
    if (e.residual >= 0) add(args.inputs[e.residual]);
    if (e.bias >= 0) {
      const TensorRef& b = args.inputs[e.bias];
      sizes[1] = y.sizes[1];
      strides[1] = b.sizes.size() == 1 ? b.strides[0] : b.strides[1];
      add({b.data, b.dtype, sizes, strides});
    }
    if (e.activation == Activation::relu) ops.push_back({PostOp::relu});
    if (ops.empty()) return;
    FinishArguments a;
    a.elements = y.numel();
    a.rank = static_cast<int>(y.sizes.size());
    std::copy(y.sizes.begin(), y.sizes.end(), a.sizes);
    a.x = view_of(y, y.sizes);
    a.post = steps_of(ops, operands, y.sizes);
    std::call_once(finish_once_, [&] {
      finish_ = std::make_unique<LoopKernel>(plain_.device(), Loop::finishing, type_, type_, type_);
    });
    void* pointers[] = {&a};
    finish_->launch(*args.stream, shape_of_elements(a.elements, finish_->properties()), pointers);
  }

  ConvProblem p_;
  DType type_;
  std::shared_ptr<const device::cuda::ContextOwner> context_;
  LazyKernel plain_;
  ConvWeights weights_;
  GatheredConv gathered_;
  std::string version_;
  Notes notes_;
  mutable std::once_flag zeros_once_, finish_once_;
  mutable std::unique_ptr<device::Memory> zeros_;
  mutable std::unique_ptr<LoopKernel> finish_;
};

} // namespace

std::string supports_cudnn_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                std::span<const OperandInfo> outputs, const device::Properties&) {
  const auto& p = std::get<ConvProblem>(problem);
  const DType x = inputs[0].dtype;
  if (type_of(x) < 0) return fmt::format("{} operands", name_of(x));
  if (inputs[1].dtype != x || outputs[0].dtype != x) return "operands and result of different types";
  if (p.x_zero >= 0) return "a zero point";
  if (p.spatial_rank > 3) return "more than three spatial dimensions";
  for (const auto& pads : {p.pads_begin, p.pads_end})
    if (std::any_of(pads.begin(), pads.end(), [](int64_t n) { return n < 0; })) return "a negative padding";
  const Epilogue e = epilogue_of(p.post_ops, p.has_bias ? 2 : -1, inputs, outputs[0], 1);
  if (!e.refusal.empty()) return e.refusal;
  if (e.activation != Activation::none && e.activation != Activation::relu)
    return "an activation other than Relu";
  if (p.transposed && e.in_place) return "an addition in place to a transposed convolution";
  return {};
}

std::unique_ptr<ExternKernel> make_cudnn_conv(device::Device& device, const Problem& problem,
                                              std::span<const OperandInfo> inputs,
                                              std::span<const OperandInfo> outputs) {
  return std::make_unique<CudnnConv>(device, std::get<ConvProblem>(problem), inputs, outputs);
}

} // namespace tbx::extern_kernels
