#include "extern_kernels/reference/dense.h"

#include <algorithm>

namespace tbx::extern_kernels {

std::string refuse_product(const std::vector<PostOp>& post_ops, std::span<const OperandInfo> inputs,
                           std::span<const OperandInfo> outputs) {
  if (!post_ops.empty() && !is_float(outputs[0].dtype) && !is_of_bytes(inputs[0].dtype, inputs[1].dtype))
    return "post-operations on integers";
  return is_complex(outputs[0].dtype) || outputs[0].dtype == DType::string ? "no numeric result type" : "";
}

double apply_post_op(const PostOp& op, double x, double y) {
  double a = op.alpha, b = op.beta;
  switch (op.kind) {
  case PostOp::relu: return x < 0 ? 0 : x;
  case PostOp::leaky_relu: return x < 0 ? a * x : x;
  case PostOp::clip: return std::min(std::max(x, a), b);
  case PostOp::gelu_erf: return 0.5 * x * (1 + std::erf(x * M_SQRT1_2));
  case PostOp::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case PostOp::silu: return x / (1 + std::exp(-a * x));
  case PostOp::sigmoid: return 1 / (1 + std::exp(-x));
  case PostOp::tanh: return std::tanh(x);
  case PostOp::hard_sigmoid: return std::max(0.0, std::min(1.0, a * x + b));
  case PostOp::hard_swish: return x * std::max(0.0, std::min(1.0, x / 6 + 0.5));
  case PostOp::linear: return a * x + b;
  case PostOp::round: return std::nearbyint(x);
  case PostOp::add:
  case PostOp::sum: return x + y;
  case PostOp::sub: return x - y;
  case PostOp::mul: return x * y;
  case PostOp::div: return x / y;
  }
  return x;
}

int64_t broadcast_index(int64_t i, std::span<const int64_t> to, std::span<const int64_t> from) {
  int64_t index = 0, step = 1;
  for (size_t d = to.size(); d-- > 0;) {
    int64_t k = i % to[d];
    i /= to[d];
    if (from[d] != 1) index += k * step;
    step *= from[d];
  }
  return index;
}

void apply_post_ops(const std::vector<PostOp>& ops, std::vector<double>& v, const TensorRef& out,
                    std::span<const TensorRef> inputs, bool in_f32) {
  auto rounded = [&](double x) { return in_f32 ? static_cast<double>(static_cast<float>(x)) : x; };
  if (!ops.empty())
    for (double& x : v) x = rounded(x);
  for (const PostOp& op : ops) {
    std::vector<double> operand;
    if (op.operand >= 0) operand = to_dense<double>(inputs[op.operand]);
    for (size_t i = 0; i < v.size(); ++i) {
      double y = operand.empty()
                     ? 0
                     : operand[broadcast_index(static_cast<int64_t>(i), out.sizes, inputs[op.operand].sizes)];
      v[i] = rounded(apply_post_op(op, v[i], y));
    }
  }
}

} // namespace tbx::extern_kernels
