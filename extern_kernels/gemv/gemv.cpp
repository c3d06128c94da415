// Products of one row with a constant matrix. They are bound by reading the matrix: panels are streamed at
// the speed of the memory, which oneDNN's blocked products do not reach with a single row.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/float_formats.h"
#include "base/pages.h"
#include "base/task_work.h"
#include "extern_kernels/gemv/panels.h"
#include "extern_kernels/kernel.h"
#include "extern_kernels/post_ops.h"

namespace tbx::extern_kernels {
namespace {

class Gemv : public ExternKernel {
public:
  Gemv(const MatMulProblem& problem, const OperandInfo& b)
      : p_(problem),
        panels_(b.constant->data, b.dtype, b.sizes.end()[-2], b.sizes.end()[-1], b.strides.end()[-2],
                b.strides.end()[-1],
                [&](const void* begin, int64_t bytes) { drop_pages(*b.constant, begin, bytes); }) {
    drop_pages(*b.constant);
  }

  std::string description() const override { return "matrix-vector " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return panels_.bytes(); }
  bool reads(size_t input) const override { return input != 1; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs, std::span<const TensorRef>) const override {
    return is_plain(inputs[0]) ? 0 : panels_.k() * static_cast<int64_t>(sizeof(float));
  }

  void run(const RunArgs& args) const override {
    const float* x = dense_row(args);
    const TensorRef& y = args.outputs[0];
    auto panels = [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        alignas(64) float sums[kPanel];
        panels_.multiply(p, x, sums);
        const int64_t width = std::min<int64_t>(kPanel, panels_.n() - p * kPanel);
        finish(p * kPanel, width, sums, args);
        if (is_half(y.dtype))
          encode_halves(y.dtype, sums, width, static_cast<uint16_t*>(y.data) + p * kPanel);
        else
          std::copy_n(sums, width, static_cast<float*>(y.data) + p * kPanel);
      }
    };
    const int64_t count = panels_.count();
    const int64_t chunks = std::min<int64_t>(count, tbb::this_task_arena::max_concurrency());
    if (chunks == 1 || panels_.bytes() < kTaskWork.matrix_bytes) return panels(0, count);
    // One long run of memory per thread.
    tbb::parallel_for(
        int64_t{0}, chunks, [&](int64_t c) { panels(count * c / chunks, count * (c + 1) / chunks); },
        tbb::static_partitioner());
  }

private:
  static constexpr int kPanel = gemv::kPanel;

  /// The row can be read where it lies.
  static bool is_plain(const TensorRef& a) { return a.dtype == DType::f32 && a.strides.back() == 1; }

  const float* dense_row(const RunArgs& args) const {
    const TensorRef& a = args.inputs[0];
    if (is_plain(a)) return static_cast<const float*>(a.data);
    auto* x = static_cast<float*>(args.workspace);
    take(a, 0, panels_.k(), x);
    return x;
  }

  /// Elements of a row from `first` on as floats.
  static void take(const TensorRef& t, int64_t first, int64_t count, float* to) {
    if (is_half(t.dtype) && t.strides.back() == 1)
      decode_halves(t.dtype, static_cast<const uint16_t*>(t.data) + first, count, to);
    else
      for (int64_t i = 0; i < count; ++i) to[i] = at(t, (first + i) * t.strides.back());
  }

  static float at(const TensorRef& t, int64_t i) {
    return is_half(t.dtype) ? decode_float(t.dtype, static_cast<const uint16_t*>(t.data)[i])
                            : static_cast<const float*>(t.data)[i];
  }

  /// With an operand that is a row or a single value.
  static void combine_with(const TensorRef& t, PostOp::Kind kind, int64_t first, int64_t width, float* sums) {
    float values[kPanel];
    const bool is_single = t.sizes.empty() || t.sizes.back() == 1;
    if (is_single)
      values[0] = at(t, 0);
    else
      take(t, first, width, values);
    combine(kind, sums, values, is_single ? 0 : 1, width);
  }

  void finish(int64_t first, int64_t width, float* sums, const RunArgs& args) const {
    if (p_.alpha != 1)
      for (int64_t j = 0; j < width; ++j) sums[j] *= p_.alpha;
    if (p_.has_bias) combine_with(args.inputs[2], PostOp::add, first, width, sums);
    for (const PostOp& op : p_.post_ops) {
      if (op.operand < 0)
        activate(op, sums, kPanel); // one by one takes as long as a panel takes to come from memory
      else
        combine_with(args.inputs[op.operand], op.kind, first, width, sums);
    }
  }

  MatMulProblem p_;
  gemv::Panels panels_;
};

/// All dimensions but the last `inner` are known to be 1.
bool are_ones(const std::vector<int64_t>& sizes, int inner) {
  return std::all_of(sizes.begin(), sizes.end() - inner, [](int64_t s) { return s == 1; });
}

bool is_row(const OperandInfo& t) { return !t.sizes.empty() && t.sizes.back() >= 0 && are_ones(t.sizes, 1); }

} // namespace

std::string supports_gemv(const Problem& problem, std::span<const OperandInfo> inputs,
                          std::span<const OperandInfo> outputs, const Target&) {
  const auto& p = std::get<MatMulProblem>(problem);
  if (!is_row(inputs[0]) || !is_row(outputs[0])) return "more than one row";
  const OperandInfo& b = inputs[1];
  if (!b.constant || b.strides.size() < 2 || !are_ones(b.sizes, 2)) return "no constant matrix";
  if (b.constant->numel() == 0) return "an empty matrix";
  for (const OperandInfo& t : inputs)
    if (t.dtype != DType::f32 && t.dtype != DType::undefined && !is_half(t.dtype))
      return fmt::format("{} operands", name_of(t.dtype));
  if (outputs[0].dtype != DType::f32 && !is_half(outputs[0].dtype))
    return fmt::format("a {} result", name_of(outputs[0].dtype));
  if (outputs[0].strides.empty() || (outputs[0].strides.back() != 1 && outputs[0].sizes.back() != 1))
    return "a result that is not dense";
  for (size_t i = 2; i < inputs.size(); ++i)
    if (!inputs[i].sizes.empty() && !is_row(inputs[i])) return "an operand that is not a row";
  for (const PostOp& op : p.post_ops)
    if (op.kind == PostOp::sum) return "an in-place sum";
  return {};
}

std::unique_ptr<ExternKernel> make_gemv(const Problem& problem, std::span<const OperandInfo> inputs,
                                        std::span<const OperandInfo>) {
  return std::make_unique<Gemv>(std::get<MatMulProblem>(problem), inputs[1]);
}

} // namespace tbx::extern_kernels
