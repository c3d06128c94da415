// MatMulNBits, MoE and QMoE: matrices of packed integers become doubles whole, and plain loops multiply with
// them.
#include <tbb/parallel_for.h>

#include "extern_kernels/gemv/byte_rows.h"
#include "extern_kernels/reference/dense.h"
#include "extern_kernels/reference/host.h"
#include "extern_kernels/reference/row_work.h"

namespace tbx::extern_kernels {
namespace {

using Values = std::vector<double>;

/// Element `i` of integers of `bits` bits that lie one after the other, lowest bits first.
double element(const uint8_t* bytes, int64_t i, int64_t bits) {
  return bytes[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
}

/// A matrix [n, k] of packed integers. A row has `row_bytes` bytes; `scale(j, b)` and `zero(j, b)` are those
/// of block b of row j.
template <class Scale, class Zero>
Values unpacked(const uint8_t* bytes, int64_t row_bytes, int64_t n, int64_t k, int64_t bits, int64_t block,
                const Scale& scale, const Zero& zero) {
  Values w(static_cast<size_t>(n * k));
  for (int64_t j = 0; j < n; ++j)
    for (int64_t l = 0; l < k; ++l)
      w[j * k + l] = (element(bytes + j * row_bytes, l, bits) - zero(j, l / block)) * scale(j, l / block);
  return w;
}

/// `rows` of k activations, rounded to 8 bits by blocks where the model is content with that.
Values activations(Values given, int64_t k, int64_t block, bool rounded) {
  if (!rounded) return given;
  std::vector<float> x(given.begin(), given.end());
  for (size_t row = 0; row + k <= x.size(); row += static_cast<size_t>(k))
    gemv::round_to_bytes(x.data() + row, k, block);
  return {x.begin(), x.end()};
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void matmul_nbits(const PackedMatMulProblem& p, const RunArgs& args) {
  const std::span<const TensorRef> in = args.inputs;
  const int64_t k = p.k, n = p.n, block = p.block, bits = p.bits, blocks = (k + block - 1) / block,
                rows = in[0].sizes[0];
  auto has = [&](size_t i) { return in.size() > i && in[i].data; };
  const std::vector<uint8_t> data = to_dense<uint8_t>(in[1]);
  const Values scales = to_dense<double>(in[2]), bias = has(4) ? to_dense<double>(in[4]) : Values(),
               zeros = has(3) ? to_dense<double>(in[3]) : Values();
  const bool packed_zeros = has(3) && in[3].dtype == DType::u8;
  const int64_t row_bytes = blocks * block * bits / 8, zero_bytes = (blocks * bits + 7) / 8;
  TBX_MODEL(
      static_cast<int64_t>(data.size()) == n * row_bytes &&
          static_cast<int64_t>(scales.size()) == n * blocks &&
          (zeros.empty() || static_cast<int64_t>(zeros.size()) == n * (packed_zeros ? zero_bytes : blocks)),
      "{} bytes of integers and {} scales for {} x {} in blocks of {}", data.size(), scales.size(), n, k,
      block);
  const std::vector<uint8_t> zero_data = packed_zeros ? to_dense<uint8_t>(in[3]) : std::vector<uint8_t>();
  const Values w = unpacked(
      data.data(), row_bytes, n, k, bits, block, [&](int64_t j, int64_t b) { return scales[j * blocks + b]; },
      [&](int64_t j, int64_t b) {
        if (zeros.empty()) return static_cast<double>(1 << (bits - 1));
        return packed_zeros ? element(zero_data.data() + j * zero_bytes, b, bits) : zeros[j * blocks + b];
      });
  Values given = to_dense<double>(in[0]);
  if (p.work.norm != RowWork::as_it_is)
    norm_row(p.work, given, has(5) ? to_dense<double>(in[5]) : Values(),
             has(6) ? to_dense<double>(in[6]) : Values());
  const Values x = activations(std::move(given), k, block, p.rounds);
  Values y(static_cast<size_t>(rows * n));
  tbb::parallel_for(int64_t{0}, rows * n, [&](int64_t i) {
    y[i] = dot(x.data() + i / n * k, w.data() + i % n * k, k) + (bias.empty() ? 0 : bias[i % n]);
  });
  if (p.work != RowWork{}) y = finish_row(p.work, std::move(y));
  if (has(7)) {
    const Values added = to_dense<double>(in[7]);
    for (size_t i = 0; i < y.size(); ++i) y[i] += added[i];
  }
  from_dense(y, args.outputs[0]);
}

/// The matrices of all experts [experts, n, k].
Values expert_matrices(const ExpertsProblem& p, std::span<const TensorRef> in, int64_t k) {
  const TensorRef& t = in[2];
  const int64_t experts = t.sizes[0], n = t.sizes[1], bits = p.bits;
  if (bits == 0) return to_dense<double>(t);
  const int64_t given = p.block, block = given ? given : k, blocks = given ? (k + block - 1) / block : 1,
                row_bytes = t.sizes[2];
  const std::vector<uint8_t> data = to_dense<uint8_t>(t);
  const Values scales = to_dense<double>(in[4]);
  const bool has_zeros = in.size() > 5 && in[5].data;
  const std::vector<uint8_t> zeros = has_zeros ? to_dense<uint8_t>(in[5]) : std::vector<uint8_t>();
  // Zero points of blocks are packed row by row, those of whole rows along the rows.
  const int64_t row_zeros = given ? (blocks * bits + 7) / 8 : 0,
                expert_zeros = given ? n * row_zeros : (n * bits + 7) / 8;
  Values all;
  for (int64_t e = 0; e < experts; ++e) {
    const Values w = unpacked(
        data.data() + e * n * row_bytes, row_bytes, n, k, bits, block,
        [&](int64_t j, int64_t b) { return scales[(e * n + j) * blocks + b]; },
        [&](int64_t j, int64_t b) {
          if (!has_zeros) return static_cast<double>(1 << (bits - 1));
          const uint8_t* at = zeros.data() + e * expert_zeros;
          return given ? element(at + j * row_zeros, b, bits) : element(at, j, bits);
        });
    all.insert(all.end(), w.begin(), w.end());
  }
  return all;
}

void expert_products(const ExpertsProblem& p, const RunArgs& args) {
  const std::span<const TensorRef> in = args.inputs;
  const int64_t rows = in[0].sizes[0], k = in[0].sizes[1], choices = in[1].sizes[1], experts = in[2].sizes[0],
                n = in[2].sizes[1], block = p.block;
  const Values w = expert_matrices(p, in, k), x = activations(to_dense<double>(in[0]), k, block, p.rounds);
  const Values bias = in.size() > 3 && in[3].data ? to_dense<double>(in[3]) : Values();
  const std::vector<int64_t> chosen = to_dense<int64_t>(in[1]);
  for (int64_t e : chosen) TBX_MODEL(e >= 0 && e < experts, "expert {} of {} is chosen", e, experts);
  Values y(static_cast<size_t>(rows * choices * n));
  tbb::parallel_for(int64_t{0}, rows * choices * n, [&](int64_t i) {
    const int64_t row = i / n / choices, column = chosen[i / n] * n + i % n;
    y[i] = dot(x.data() + row * k, w.data() + column * k, k) + (bias.empty() ? 0 : bias[column]);
  });
  from_dense(y, args.outputs[0]);
}

} // namespace

std::string supports_reference_matmul_nbits(const Problem&, std::span<const OperandInfo>,
                                            std::span<const OperandInfo>, const Target&) {
  return {};
}

std::unique_ptr<ExternKernel> make_reference_matmul_nbits(const Problem& p, std::span<const OperandInfo>,
                                                          std::span<const OperandInfo>) {
  return std::make_unique<PlainKernel<PackedMatMulProblem>>(p, matmul_nbits);
}

std::string supports_reference_expert_products(const Problem&, std::span<const OperandInfo>,
                                               std::span<const OperandInfo>, const Target&) {
  return {};
}

std::unique_ptr<ExternKernel> make_reference_expert_products(const Problem& p, std::span<const OperandInfo>,
                                                             std::span<const OperandInfo>) {
  return std::make_unique<PlainKernel<ExpertsProblem>>(p, expert_products);
}

} // namespace tbx::extern_kernels
