// Exact matrix products of 8-bit integers where the library has only saturating ones.
#include "base/memory.h"
#include "base/pages.h"
#include "extern_kernels/bytes/operands.h"
#include "extern_kernels/bytes/product.h"
#include "extern_kernels/direct/operands.h"

namespace tbx::extern_kernels {
namespace bytes {
namespace {

using direct::in_pieces;
using direct::Memory;

int64_t at_end(std::span<const int64_t> v, size_t from_end) { return v[v.size() - from_end]; }

/// Steps through the batch dimensions, 0 where the operand is repeated.
std::vector<int64_t> batch_steps(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  std::vector<int64_t> steps(strides.begin(), strides.end() - 2);
  for (size_t d = 0; d < steps.size(); ++d)
    if (sizes[d] == 1) steps[d] = 0;
  return steps;
}

/// Strides as if matrices of `each` elements lay one behind the other.
std::vector<int64_t> dense_batch(std::span<const int64_t> sizes, int64_t each) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size() - 2; d-- > 0; each *= sizes[d]) strides[d] = each;
  return strides;
}

int64_t count_of(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (size_t d = 0; d + 2 < sizes.size(); ++d) n *= sizes[d];
  return n;
}

int64_t place_of_matrix(int64_t i, const TensorRef& t) {
  int64_t place = 0;
  for (size_t d = t.sizes.size() - 2; d-- > 0; i /= t.sizes[d]) place += i % t.sizes[d] * t.strides[d];
  return place;
}

Walk walk_of(const TensorRef& t) {
  Walk w{t.data, t.dtype, at_end(t.sizes, 1) == 1 ? 0 : at_end(t.strides, 1),
         batch_steps(t.sizes, t.strides)};
  w.steps.push_back(at_end(t.sizes, 2) == 1 ? 0 : at_end(t.strides, 2));
  return w;
}

class ByteMatMul : public ExternKernel {
public:
  ByteMatMul(const MatMulProblem& p, const OperandInfo& b) : p_(p) {
    if (!b.constant || b.strides.empty()) return;
    const TensorRef weights{const_cast<std::byte*>(b.constant->data), b.dtype, b.sizes, b.strides};
    packed_bytes_ = bytes_of(weights);
    packed_ = allocate_aligned(packed_bytes_);
    pack(weights, static_cast<int8_t*>(packed_.get()));
    drop_pages(*b.constant);
  }

  std::string description() const override {
    return "own " + to_string(Problem(p_)) + ", exact products of bytes";
  }
  int64_t packed_bytes() const override { return packed_bytes_; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs, std::span<const TensorRef>) const override {
    Memory memory(nullptr);
    take(memory, inputs);
    return memory.used();
  }

  void run(const RunArgs& args) const override {
    const TensorRef &a = args.inputs[0], &b = args.inputs[1], &c = args.outputs[0];
    if (c.numel() == 0) return;
    Memory memory(args.workspace);
    const Space space = take(memory, args.inputs);
    widen_rows(a, direct::zero_point<int32_t>(args.inputs, p_.a_zero), space);
    if (space.panels) pack(b, space.panels);

    const int64_t k = at_end(a.sizes, 1);
    const int64_t start = 0;
    Product p;
    p.sizes.assign(c.sizes.begin(), c.sizes.end() - 1);
    p.terms = terms(k, &start);
    p.columns = at_end(c.sizes, 1);
    p.rows = space.rows;
    p.row_steps = batch_steps(a.sizes, dense_batch(a.sizes, at_end(a.sizes, 2) * k));
    p.row_steps.push_back(k);
    p.panels = space.panels ? space.panels : static_cast<const int8_t*>(packed_.get());
    p.panel_steps = batch_steps(b.sizes, dense_batch(b.sizes, matrix_bytes(b)));
    while (!p.panel_steps.empty() && p.panel_steps.back() == 0) p.panel_steps.pop_back();
    p.outer = p.panel_steps.size();
    p.unsigned_weights = b.dtype == DType::u8;
    p.weight_zero = direct::zero_point<int32_t>(args.inputs, p_.b_zero);
    p.row_totals = space.totals;
    p.row_length = std::max<int64_t>(1, k);
    p.result = walk_of(c);
    for (const PostOp& op : p_.post_ops)
      if (op.operand >= 0) p.operands.push_back(walk_of(args.inputs[op.operand]));
    p.post_ops = &p_.post_ops;
    bytes::run(p);
  }

private:
  struct Space {
    int16_t* rows;
    int32_t* totals;
    int8_t* panels; ///< nullptr: they are packed already
  };

  Space take(Memory& memory, std::span<const TensorRef> in) const {
    Space space{};
    space.rows = memory.take<int16_t>(in[0].numel() + kSlack);
    space.totals = memory.take<int32_t>(count_of(in[0].sizes) * at_end(in[0].sizes, 2));
    if (!packed_) space.panels = memory.take<int8_t>(bytes_of(in[1]));
    return space;
  }

  static Terms terms(int64_t k, const int64_t* start) { return {start, 1, (k + 1) / 2}; }
  static int64_t matrix_bytes(const TensorRef& b) {
    return panels_of(at_end(b.sizes, 1)) * panel_bytes(terms(at_end(b.sizes, 2), nullptr));
  }
  static int64_t bytes_of(const TensorRef& b) { return count_of(b.sizes) * matrix_bytes(b); }

  static void pack(const TensorRef& b, int8_t* to) {
    const int64_t k = at_end(b.sizes, 2), n = at_end(b.sizes, 1), panels = panels_of(n);
    const int64_t down = at_end(b.strides, 2), along = at_end(b.strides, 1);
    const Terms terms = ByteMatMul::terms(k, nullptr);
    in_pieces(count_of(b.sizes) * panels, static_cast<double>(b.numel()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto* from = static_cast<const int8_t*>(b.data) + place_of_matrix(i / panels, b);
        pack_panel(
            i % panels, n, terms, k,
            [&](int64_t j, int64_t, int64_t l) { return from[l * down + j * along]; },
            to + i * panel_bytes(terms));
      }
    });
  }

  static void widen_rows(const TensorRef& a, int32_t zero, const Space& space) {
    const int64_t m = at_end(a.sizes, 2), k = at_end(a.sizes, 1);
    std::fill_n(space.rows + a.numel(), kSlack, int16_t{0});
    in_pieces(count_of(a.sizes) * m, static_cast<double>(a.numel()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto* from =
            static_cast<const int8_t*>(a.data) + place_of_matrix(i / m, a) + i % m * at_end(a.strides, 2);
        space.totals[i] = widen(from, a.dtype, at_end(a.strides, 1), k, zero, space.rows + i * k);
      }
    });
  }

  MatMulProblem p_;
  std::shared_ptr<void> packed_;
  int64_t packed_bytes_ = 0;
};

} // namespace
} // namespace bytes

std::string supports_byte_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs) {
  const auto& p = std::get<MatMulProblem>(problem);
  if (!is_byte(inputs[0].dtype) || !is_byte(inputs[1].dtype)) return "operands that are no bytes";
  if (!bytes::has_tiles()) return "a CPU without AVX2";
  if (p.has_bias || p.alpha != 1) return "a bias or a factor of an integer product";
  if (inputs[1].constant && inputs[1].strides.empty()) return "weights without known strides";
  return bytes::Epilogue::refusal(p.post_ops, inputs, outputs[0].dtype);
}

std::unique_ptr<ExternKernel> make_byte_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo>) {
  return std::make_unique<bytes::ByteMatMul>(std::get<MatMulProblem>(problem), inputs[1]);
}

} // namespace tbx::extern_kernels
