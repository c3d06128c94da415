// Products of one row with a norm before them or a gate behind them (RowProductProblem), by RowProduct.
#include "extern_kernels/cuda/row_call.h"

#include <fmt/format.h>

#include "extern_kernels/launched_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

bool is_real(DType type) { return type == DType::f32 || is_half(type); }
bool has(std::span<const OperandInfo> inputs, size_t i) {
  return i < inputs.size() && inputs[i].dtype != DType::undefined;
}

int library_type(DType type) {
  return type == DType::f32 ? lt::kF32 : type == DType::f16 ? lt::kF16 : lt::kBf16;
}

class RowCall final : public LaunchedKernel {
public:
  RowCall(device::Device& device, const RowProductProblem& p, std::span<const OperandInfo> inputs,
          std::span<const OperandInfo> outputs, RowProduct::Load load)
      : p_(p), row_(device, inputs[0], inputs[1], std::move(load)) {
    const int64_t k = inputs[1].sizes[0], n = inputs[1].sizes[1];
    gemm_.type = library_type(inputs[1].dtype), gemm_.result = library_type(outputs[0].dtype);
    gemm_.m = 1, gemm_.k = k, gemm_.n = n, gemm_.a_step = k;
    gemm_.bias = has(inputs, 2);
    const std::vector<int64_t>& strides = inputs[1].strides;
    gemm_.b_columns = strides[0] == 1 && strides[1] == k;
    gemm_.b_step = gemm_.b_columns ? k : n;
  }

  std::string description() const override { return "our own " + to_string(Problem(p_)); }
  int64_t workspace_bytes(std::span<const TensorRef>, std::span<const TensorRef>) const override {
    row_.prepare(gemm_); // ahead of the run, which may be recorded
    return 0;
  }
  int64_t packed_bytes() const override { return row_.bytes(); }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    auto given = [&](size_t i) { return i < args.inputs.size() ? args.inputs[i] : TensorRef{}; };
    const TensorRef scale = given(3), shift = given(4);
    const GemmAddresses at{args.inputs[0].data, args.inputs[1].data, given(2).data, nullptr,
                           args.outputs[0].data};
    row_.run(*args.stream, gemm_, at,
             {p_.work, args.inputs[0].dtype, scale.dtype, shift.dtype, scale.data, shift.data});
  }

private:
  RowProductProblem p_;
  Gemm gemm_;
  RowProduct row_;
};

} // namespace

std::string supports_cuda_row_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                      std::span<const OperandInfo> outputs, const device::Properties&) {
  const RowWork& work = std::get<RowProductProblem>(problem).work;
  const OperandInfo &x = inputs[0], &w = inputs[1];
  if (!is_real(x.dtype) || !is_real(w.dtype) || !is_real(outputs[0].dtype))
    return fmt::format("a row of {} times {}", name_of(x.dtype), name_of(w.dtype));
  if (x.sizes.size() != 2 || x.sizes[0] != 1) return "more than one row";
  if (!w.constant || w.strides.size() != 2) return "a matrix that is no constant";
  const int64_t k = w.sizes[0], n = w.sizes[1];
  if (k <= 0 || n <= 0 || k > RowProduct::kMostStaged || k * size_of(w.dtype) % 16 != 0)
    return fmt::format("a matrix of {} x {}", k, n);
  if (work.gate != RowWork::no_gate && n % 2 != 0) return "an odd number of columns behind a gate";
  if (has(inputs, 2) && inputs[2].dtype != outputs[0].dtype) return "a bias of another type";
  for (size_t i : {3, 4})
    if (has(inputs, i) && (!inputs[i].constant || !is_real(inputs[i].dtype)))
      return "a scale or shift that is no constant";
  const auto is_dense = [&](size_t i, int64_t size) {
    const std::vector<int64_t>& s = inputs[i].strides;
    return size == 1 || s.empty() || s.back() == 1;
  };
  for (size_t i : {0, 3, 4})
    if (has(inputs, i) && !is_dense(i, k)) return "a row that is not dense";
  if (has(inputs, 2) && !is_dense(2, n)) return "a bias that is not dense";
  return {};
}

std::unique_ptr<ExternKernel> make_row_call(device::Device& device, const Problem& problem,
                                            std::span<const OperandInfo> inputs,
                                            std::span<const OperandInfo> outputs, RowProduct::Load load) {
  return std::make_unique<RowCall>(device, std::get<RowProductProblem>(problem), inputs, outputs,
                                   std::move(load));
}

std::unique_ptr<ExternKernel> make_cuda_row_product(device::Device& device, const Problem& problem,
                                                    std::span<const OperandInfo> inputs,
                                                    std::span<const OperandInfo> outputs) {
  return make_row_call(device, problem, inputs, outputs, {});
}

} // namespace tbx::extern_kernels
