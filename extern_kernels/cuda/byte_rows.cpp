#include "extern_kernels/cuda/byte_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/dtype.h"
#include "base/rounding.h"

namespace tbx::extern_kernels::cuda {

namespace {

const char* const kEarlyStart =
#include "extern_kernels/cuda/early_start.inc"
    ;

const char* const kTileSums =
#include "extern_kernels/cuda/tile_sums.inc"
    ;

const char* const kSteps =
#include "extern_kernels/cuda/byte_steps.inc"
    ;

const char* const kText =
#include "extern_kernels/cuda/byte_rows.inc"
    ;

/// Tiles are faster where more are to be expected (an H200).
constexpr double kMostCycles = 10000;

/// The step from a row to the next, if it is the same for all of them.
std::optional<int64_t> step_of(const int* sizes, const long long* strides) {
  int64_t step = 0, rows = 1;
  for (int d = 3; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    if (rows == 1)
      step = strides[d];
    else if (strides[d] != step * rows)
      return std::nullopt;
    rows *= sizes[d];
  }
  return step;
}

/// Four elements beside each other are read or written at once.
bool lies_in_fours(const void* data, DType type, int64_t row_step, int64_t column_step) {
  return column_step == 1 && row_step % 4 == 0 &&
         reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(4 * size_of(type)) == 0;
}

bool fits_int(int64_t n) { return n >= 0 && n <= std::numeric_limits<int>::max(); }

} // namespace

ByteRows::ByteRows(device::Device& device, Ends ends, Load load, int multiprocessors, bool clusters)
    : ends_(std::move(ends)), load_(std::move(load)), multiprocessors_(multiprocessors), clusters_(clusters),
      overlaps_(begins_early(device.properties())) {}

/// As of half as many halves.
FewRowsExpected ByteRows::expect(int64_t rows, int64_t columns, int64_t terms) const {
  if (!ends_.known_rows) rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  return expect_few_rows(rows, columns, ceil_div(terms, 2), multiprocessors_, clusters_);
}

bool ByteRows::pays(int64_t rows, int64_t columns, int64_t terms) const {
  return expect(rows, columns, terms).cycles <= kMostCycles;
}

bool ByteRows::add_operand(int i, const View& v, const ByteArguments& call, Work& work) const {
  const std::optional<int64_t> step = step_of(call.row_sizes, v.strides);
  const DType type = ends_.operands[static_cast<size_t>(i)];
  if (!step || !fits_int(*step)) return false;
  const bool full = *step != 0;
  if (full && !lies_in_fours(v.data, type, *step, v.strides[4])) return false;
  if (!full && !fits_int(v.strides[4] * call.columns)) return false;
  work.arguments.operands[i] = v.data;
  work.arguments.operand_steps[i] = static_cast<int>(full ? *step : v.strides[4]);
  work.macros += fmt::format(" F({}, {}, {})", i, static_cast<int>(type), full ? 1 : 0);
  return true;
}

std::optional<ByteRows::Work> ByteRows::work_of(const ByteArguments& call, bool windows) const {
  constexpr int64_t kWeights = 24, kRows = 8; // vectors of a thread that are on their way
  if (call.groups != 1 || call.b_zero || call.columns % 4 != 0) return std::nullopt;
  if (call.columns == 0 || call.packed_terms == 0) return std::nullopt;
  Work work;
  ByteRowsArguments& a = work.arguments;
  a.a = call.a, a.w = call.w, a.sums = call.sums, a.a_zero = call.a_zero;
  a.bias = static_cast<const int*>(call.bias.data);
  if (a.bias && call.bias.strides[4] != 1) return std::nullopt;
  a.out = call.out.data;
  a.rows = call.rows, a.columns = call.columns;
  const std::optional<int64_t> out_step = step_of(call.row_sizes, call.out.strides);
  if (!out_step || !fits_int(*out_step)) return std::nullopt;
  if (!lies_in_fours(call.out.data, ends_.result, *out_step, call.out.strides[4])) return std::nullopt;
  a.out_step = static_cast<int>(*out_step);

  const std::optional<int64_t> a_step = windows ? std::nullopt : step_of(call.row_sizes, call.a_row);
  int window = 0;
  if (a_step) {
    if (!fits_int(*a_step * call.rows + call.packed_terms)) return std::nullopt;
    a.a_step = static_cast<int>(*a_step);
  } else {
    // Images of two dimensions.
    if (call.depth % kChunk != 0 || call.row_sizes[1] != 1 || call.kernel[0] != 1) return std::nullopt;
    if (windows && (call.in[0] != 1 || call.pad[0] != 0)) return std::nullopt;
    window = call.kernel[2];
    int64_t most = call.a_row[0] * call.row_sizes[0];
    a.line_rows = call.row_sizes[3], a.image_rows = call.row_sizes[2] * call.row_sizes[3];
    a.line = divisor_of(a.line_rows), a.image = divisor_of(a.image_rows);
    if (!fits_int(call.a_row[0])) return std::nullopt;
    a.image_step = static_cast<int>(call.a_row[0]);
    for (int d = 0; d < 2; ++d) {
      const int64_t step = call.a_row[2 + d];
      most += std::abs(step) * (int64_t{call.row_sizes[2 + d]} * (windows ? call.stride[1 + d] : 1) +
                                int64_t{call.kernel[1 + d]} * call.dilation[1 + d] + call.pad[1 + d]);
      if (!fits_int(step)) return std::nullopt;
      a.steps[d] = static_cast<int>(step);
      a.in[d] = windows ? call.in[1 + d] : call.row_sizes[2 + d];
      a.stride[d] = windows ? call.stride[1 + d] : 1;
      a.dilation[d] = call.dilation[1 + d], a.pad[d] = call.pad[1 + d];
    }
    if (!fits_int(most)) return std::nullopt;
  }

  std::string steps;
  work.macros = "#define EACH_OPERAND(F)";
  for (int i = 0; i < call.post.count; ++i) {
    const PostStep& op = call.post.steps[i];
    const bool has_operand = ends_.operands[static_cast<size_t>(i)] != DType::undefined;
    if (has_operand && !add_operand(i, op.operand, call, work)) return std::nullopt;
    a.factors[i][0] = op.alpha, a.factors[i][1] = op.beta;
    steps += fmt::format(" x = step<{}>(x, p.factors[{}][0], p.factors[{}][1], {});", op.kind, i, i,
                         has_operand ? fmt::format("OF({})", i) : "0");
  }
  const FewRowsExpected expected = expect(call.rows, call.columns, call.packed_terms);
  if (expected.cycles > kMostCycles) return std::nullopt;
  const FewRowsShape& s = expected.shape;
  const int64_t chunks = ceil_div(ceil_div(call.packed_terms, kChunk), int64_t{s.blocks} * s.warps);
  work.macros += fmt::format(
      "\n#define STEPS{}\n#define A_SIGNED {}\n#define B_SIGNED {}\n#define RESULT {}\n#define TERMS {}\n"
      "#define DEPTH {}\n#define WINDOW {}\n#define BLOCKS {}\n#define WARPS {}\n#define ROW_WARPS {}\n"
      "#define ROWS {}\n#define COLUMNS {}\n#define HELD {}\n#define AHEAD {}\n#define BIAS {}\n"
      "#define OVERLAP {}\n",
      steps, ends_.a == DType::i8 ? 1 : 0, ends_.w == DType::i8 ? 1 : 0, static_cast<int>(ends_.result),
      call.packed_terms, call.depth, window, s.blocks, s.warps, s.row_warps, s.rows, s.columns,
      std::clamp<int64_t>(chunks, 1, kWeights / s.columns), std::clamp<int64_t>(chunks, 1, kRows / s.rows),
      a.bias ? 1 : 0, overlaps_ ? 1 : 0);
  const int64_t row_tiles = ceil_div(call.rows, s.tile_rows());
  const int64_t blocks = row_tiles * ceil_div(call.columns, s.tile_columns()) * s.blocks;
  if (!fits_int(blocks)) return std::nullopt;
  a.row_tiles = static_cast<int>(row_tiles);
  work.shape.blocks = static_cast<uint32_t>(blocks);
  work.shape.threads = static_cast<uint32_t>(32 * s.warps * s.row_warps);
  work.shape.overlap = overlaps_;
  return work;
}

const ByteRows::Kernel& ByteRows::kernel_of(const std::string& macros) const {
  std::scoped_lock lock(mutex_);
  Kernel& kernel = kernels_[macros];
  if (!kernel.module) {
    kernel.module = load_(macros + loops_arguments() + kEarlyStart + kTileSums + kSteps + kText);
    kernel.kernel = kernel.module->kernel("byte_rows");
  }
  return kernel;
}

void ByteRows::run(device::Stream& stream, const Work& work) const {
  ByteRowsArguments arguments = work.arguments;
  void* pointers[] = {&arguments};
  stream.launch(kernel_of(work.macros).kernel, work.shape, pointers);
}

} // namespace tbx::extern_kernels::cuda
