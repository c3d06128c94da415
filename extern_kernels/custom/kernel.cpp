// Runs a node of a custom operator inside a plan.
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstring>

#include "base/strides.h"
#include "extern_kernels/custom/custom_impl.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels {

namespace {

/// The constant as the operand shows it, without data where that is not known: a view of one gets a copy in
/// row-major order.
std::shared_ptr<const Tensor> dense(const OperandInfo& in) {
  if (in.strides.size() != in.sizes.size()) return std::make_shared<const Tensor>();
  if (in.sizes == in.constant->dims && in.strides == row_major_strides(in.sizes)) return in.constant;
  auto copy = std::make_shared<Tensor>(Tensor::make(in.dtype, in.sizes));
  const int64_t width = size_of(in.dtype);
  TensorRef view{const_cast<std::byte*>(in.constant->data), in.dtype, in.sizes, in.strides};
  for_each_element(view, [&](int64_t i, int64_t at) {
    std::memcpy(copy->mutable_data() + i * width, in.constant->data + at * width, static_cast<size_t>(width));
  });
  return copy;
}

} // namespace

class CustomKernel final : public ExternKernel {
public:
  CustomKernel(std::shared_ptr<const CustomCall> call, std::span<const OperandInfo> inputs)
      : call_(std::move(call)), node_(*call_->node->impl_), op_(*node_.op) {
    if (!op_.descriptor().create) return;
    std::vector<TbxTensor> tensors;
    for (const OperandInfo& in : inputs) {
      const void* data = nullptr;
      if (in.constant) data = constants_.emplace_back(dense(in))->data;
      tensors.push_back({static_cast<int32_t>(in.dtype), static_cast<int32_t>(in.sizes.size()),
                         in.sizes.data(), const_cast<void*>(data)});
    }
    TbxCreateContext ctx{};
    ctx.size = sizeof ctx;
    ctx.op = &op_.descriptor();
    ctx.node = &node_.node;
    ctx.num_inputs = static_cast<int32_t>(tensors.size());
    ctx.inputs = tensors.data();
    call_operator(op_, "create", ctx, op_.descriptor().create);
    state_ = ctx.state;
  }
  ~CustomKernel() override {
    if (op_.descriptor().destroy && state_) op_.descriptor().destroy(&op_.descriptor(), state_);
  }

  std::string description() const override { return op_.description(); }
  void run(const RunArgs& args) const override;

private:
  /// What compute's context points at while it runs.
  struct Run {
    const CustomKernel& kernel;
    const RunArgs& args;
    const std::vector<CustomOutput>& shapes;
    std::vector<std::vector<int64_t>> made; ///< sizes of outputs that compute allocates
    std::vector<char> wanted;               ///< outputs that compute still has to allocate
    std::string failure;
  };
  static TbxStatus allocate(TbxComputeContext* ctx, int32_t output, int32_t rank, const int64_t* dims);
  static void parallel_for(TbxComputeContext* ctx, int64_t count, int64_t grain,
                           void (*body)(void*, int64_t, int64_t), void* data);
  void check_shape(size_t i, std::span<const int64_t> dims, const RunArgs& args) const;

  std::shared_ptr<const CustomCall> call_;
  const CustomNode::Impl& node_;
  const CustomOperator& op_;
  std::vector<std::shared_ptr<const Tensor>> constants_; ///< the state may point into them
  void* state_ = nullptr;
};

TbxStatus CustomKernel::allocate(TbxComputeContext* ctx, int32_t output, int32_t rank, const int64_t* dims) {
  auto& run = *static_cast<Run*>(ctx->runtime);
  auto refuse = [&](std::string why) {
    if (run.failure.empty()) run.failure = std::move(why);
    return TBX_BACKEND_ERROR;
  };
  try {
    if (output < 0 || output >= ctx->num_outputs)
      return refuse(fmt::format("allocates output {} of {}", output, ctx->num_outputs));
    auto i = static_cast<size_t>(output);
    const CustomOutput& shape = run.shapes[i];
    if (!run.wanted[i]) return refuse(fmt::format("allocates output {}, which has memory", output));
    if (rank != static_cast<int32_t>(shape.dims.size()))
      return refuse(
          fmt::format("allocates output {} with rank {}, inferred was {}", output, rank, shape.dims.size()));
    std::vector<int64_t>& sizes = run.made[i];
    sizes.assign(dims, dims + rank);
    for (int32_t d = 0; d < rank; ++d)
      if (sizes[d] < 0 || (shape.dims[d] >= 0 && sizes[d] != shape.dims[d]))
        return refuse(fmt::format("allocates output {} with [{}], inferred was [{}]", output,
                                  fmt::join(sizes, ", "), fmt::join(shape.dims, ", ")));
    run.kernel.check_shape(i, sizes, run.args);
    int64_t bytes;
    if (__builtin_mul_overflow(checked_numel(sizes), size_of(shape.dtype), &bytes))
      return refuse(
          fmt::format("allocates output {} with [{}], which is too large", output, fmt::join(sizes, ", ")));
    void* memory = run.args.allocator->allocate(output, shape.dtype, sizes);
    ctx->outputs[i] = {static_cast<int32_t>(shape.dtype), rank, sizes.data(), memory};
    run.wanted[i] = 0;
    return TBX_OK;
  } catch (const std::exception& e) { // must not pass through the library's frames
    return refuse(e.what());
  }
}

void CustomKernel::parallel_for(TbxComputeContext*, int64_t count, int64_t grain,
                                void (*body)(void*, int64_t, int64_t), void* data) {
  if (count <= 0) return;
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, static_cast<size_t>(std::max<int64_t>(1, grain))),
                    [&](const tbb::blocked_range<int64_t>& r) { body(data, r.begin(), r.end()); });
}

/// The compiled code relies on these sizes, and its memory has them.
void CustomKernel::check_shape(size_t i, std::span<const int64_t> dims, const RunArgs& args) const {
  const CustomOutput& promised = call_->outputs[i];
  bool right = dims.size() == promised.dims.size();
  for (size_t d = 0; right && d < dims.size(); ++d) {
    int64_t want = promised.dims[d];
    if (want < 0 && want != kUnknownSize) {
      const auto& unknown = call_->unknown_dims;
      size_t k = 0;
      while (k < unknown.size() && unknown_size(static_cast<int64_t>(k)) != want) ++k;
      TBX_INTERNAL(k < unknown.size());
      want = args.inputs[unknown[k].first].sizes[unknown[k].second];
    }
    right = want == kUnknownSize || dims[d] == want;
  }
  if (right && !args.allocator)
    right = std::equal(dims.begin(), dims.end(), args.outputs[i].sizes.begin(), args.outputs[i].sizes.end());
  if (!right)
    throw_backend_error("{}: output {} has the shape [{}], which is not what infer gave before",
                        op_.description(), i, fmt::join(dims, ", "));
}

void CustomKernel::run(const RunArgs& args) const {
  std::vector<CustomInput> known;
  std::vector<TbxTensor> inputs;
  static constexpr int64_t kNothing[8] = {};
  for (const TensorRef& in : args.inputs) {
    bool given = in.dtype != DType::undefined;
    // An input without elements has no memory to point at, but is there.
    const void* data = in.data || !given ? in.data : kNothing;
    known.push_back({in.dtype, in.sizes, data});
    inputs.push_back({static_cast<int32_t>(in.dtype), static_cast<int32_t>(in.sizes.size()), in.sizes.data(),
                      const_cast<void*>(data)});
  }
  const std::vector<CustomOutput> shapes = call_->node->infer(known);
  Run state{*this,
            args,
            shapes,
            std::vector<std::vector<int64_t>>(shapes.size()),
            std::vector<char>(shapes.size(), 0),
            {}};
  std::vector<TbxTensor> outputs(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const CustomOutput& s = shapes[i];
    if (s.dtype != call_->outputs[i].dtype)
      throw_backend_error("{}: infer gives output {} the type {}, and gave {} before", op_.description(), i,
                          name_of(s.dtype), name_of(call_->outputs[i].dtype));
    outputs[i] = {static_cast<int32_t>(s.dtype), static_cast<int32_t>(s.dims.size()), s.dims.data(), nullptr};
    if (std::find(s.dims.begin(), s.dims.end(), kUnknownSize) != s.dims.end()) {
      if (!args.allocator)
        throw_backend_error("{}: infer does not know a size of output {} that it knew before",
                            op_.description(), i);
      state.wanted[i] = 1;
      continue;
    }
    check_shape(i, s.dims, args);
    int64_t bytes;
    TBX_MODEL(!__builtin_mul_overflow(checked_numel(s.dims), size_of(s.dtype), &bytes),
              "{}: output {} of the shape [{}] is too large", op_.description(), i, fmt::join(s.dims, ", "));
    outputs[i].data = args.allocator ? args.allocator->allocate(static_cast<int>(i), s.dtype, s.dims)
                                     : args.outputs[i].data;
  }
  TbxComputeContext ctx{};
  ctx.size = sizeof ctx;
  ctx.op = &op_.descriptor();
  ctx.node = &node_.node;
  ctx.state = state_;
  ctx.num_inputs = static_cast<int32_t>(inputs.size());
  ctx.num_outputs = static_cast<int32_t>(outputs.size());
  ctx.inputs = inputs.data();
  ctx.outputs = outputs.data();
  ctx.allocate = allocate;
  ctx.parallel_for = parallel_for;
  ctx.runtime = &state;
  call_operator(op_, "compute", ctx, [&](TbxComputeContext* c) {
    TbxStatus status = op_.descriptor().compute(c);
    if (!state.failure.empty()) throw_backend_error("{}: {}", op_.description(), state.failure);
    return status;
  });
  for (size_t i = 0; i < outputs.size(); ++i)
    if (state.wanted[i]) throw_backend_error("{}: compute does not allocate output {}", op_.description(), i);
}

std::unique_ptr<ExternKernel> make_custom_kernel(std::shared_ptr<const CustomCall> call,
                                                 std::span<const OperandInfo> inputs) {
  return std::make_unique<CustomKernel>(std::move(call), inputs);
}

} // namespace tbx::extern_kernels
