#include "extern_kernels/product/call.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "base/task_work.h"
#include "extern_kernels/fit.h"

namespace tbx::extern_kernels::product {
namespace {

/// Known strides, none of which repeats or turns around.
bool is_plain(const OperandInfo& t) {
  if (t.strides.size() != t.sizes.size()) return false;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (t.sizes[d] != 1 && t.strides[d] < 1) return false;
  return true;
}

std::vector<PostOp> all_of(float alpha, bool has_bias, std::span<const PostOp> post_ops) {
  std::vector<PostOp> all;
  if (alpha != 1) all.push_back({PostOp::linear, alpha, 0});
  if (has_bias) all.push_back({PostOp::add, 0, 0, 2});
  all.insert(all.end(), post_ops.begin(), post_ops.end());
  return all;
}

/// How many there are of `columns`; -1: known at run time only.
int64_t rows_of(std::span<const int64_t> sizes, size_t columns) {
  return times(known_numel(sizes.first(columns)), known_numel(sizes.subspan(columns + 1)));
}

/// With AVX-512 the library packs, too. What it does not is to fetch the next part of the weights while it
/// multiplies by this one. Of the time of the library's, with weights of 768 x 3072: 0.73 with 32 rows, 0.82
/// with 64, 0.92 with 128, 0.97 with 197, 1 with 512 and 1.04 with 1,500 (Xeon, family 6 model 207).
std::string faster_packed(const OperandInfo& matrix, int64_t rows, int64_t cache) {
  constexpr int64_t kFewest = 9, kMost = 160; ///< rows; with fewer, memory is all that takes time
  constexpr int64_t kPanel = 64;              ///< columns
  if (matrix.sizes.back() < kPanel) return fmt::format("less than {} columns", kPanel);
  if (matrix.constant->numel() * static_cast<int64_t>(sizeof(float)) < cache)
    return "weights that stay in the second cache, for which nobody waits";
  if (rows >= 0 && (rows < kFewest || rows > kMost))
    return fmt::format("{} rows: not {} to {}", rows, kFewest, kMost);
  return {};
}

} // namespace

Call::Call(const OperandInfo& matrix, float alpha, bool has_bias, std::span<const PostOp> post_ops)
    : weights_(matrix), work_(all_of(alpha, has_bias, post_ops)) {}

std::string Call::description(const Problem& problem) const {
  return fmt::format("own tiles of {} x {}, {}", weights_.usual().rows, weights_.usual().columns,
                     to_string(problem));
}

bool Call::is_serial(int64_t results, int64_t depth) {
  return static_cast<double>(results) * static_cast<double>(depth) < kTaskWork.factors;
}

void Call::run(const RunArgs& args) const {
  const int64_t results = args.outputs[0].numel();
  if (results == 0) return;
  const bool alone = is_serial(results, args.inputs[0].sizes.back());
  const Run run(weights_, work_, args, alone ? 1 : tbb::this_task_arena::max_concurrency());
  if (alone || run.tasks() == 1)
    for (int64_t i = 0; i < run.tasks(); ++i) run.task(i);
  else
    tbb::parallel_for(int64_t{0}, run.tasks(), [&](int64_t i) { run.task(i); });
}

std::string operands_refusal(std::span<const OperandInfo> inputs, const OperandInfo& result) {
  const OperandInfo& matrix = inputs[1];
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype != DType::f32 && inputs[i].dtype != DType::undefined &&
        !(i == 1 && is_half(matrix.dtype)))
      return fmt::format("{} operands", name_of(inputs[i].dtype));
  if (result.dtype != DType::f32) return fmt::format("a {} result", name_of(result.dtype));
  if (!matrix.constant) return "no constant matrix";
  if (!is_plain(matrix) || matrix.constant->numel() == 0) return "an empty or repeated matrix";
  constexpr int64_t kFew = 8; // panels would be mostly empty
  if (matrix.sizes.back() < kFew) return fmt::format("less than {} columns", kFew);
  return {};
}

std::string refusal(std::span<const OperandInfo> inputs, const OperandInfo& result, size_t columns,
                    const Target& target) {
  if (std::string reason = operands_refusal(inputs, result); !reason.empty()) return reason;
  const OperandInfo& matrix = inputs[1];
  if (target.library_isa == Isa::avx2) return {};
  if (!target.wide_multipliers)
    return "for CPUs on which the library packs the matrix in every run (AVX2 without AVX-512), or waits for "
           "it";
  return faster_packed(matrix, rows_of(result.sizes, columns), target.l2_bytes);
}

} // namespace tbx::extern_kernels::product
