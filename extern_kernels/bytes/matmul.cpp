// Exact matrix products of 8-bit integers where the library has only saturating ones.
#include "base/pages.h"
#include "base/weight_memory.h"
#include "extern_kernels/bytes/operands.h"
#include "extern_kernels/bytes/product.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/stack.h"

namespace tbx::extern_kernels {
namespace bytes {
namespace {

using direct::in_pieces;
using direct::Memory;

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

Walk walk_of(const TensorRef& t) {
  const Stack m{t};
  Walk w{t.data, t.dtype, m.columns() == 1 ? 0 : m.column_step(), batch_steps(t.sizes, t.strides)};
  w.steps.push_back(m.rows() == 1 ? 0 : m.row_step());
  return w;
}

/// `N`: the numbers of its rows.
template <class N> class ByteMatMul : public ExternKernel {
public:
  ByteMatMul(const MatMulProblem& p, Form form) : p_(p), form_(form) {}

  /// Whether the form is the fastest one for this matrix.
  bool suits(const OperandInfo& b) const {
    if (form_ != Form::bounded_quads) return true;
    if (!is_known(b) || b.constant->numel() == 0) return false;
    const TensorRef weights = tensor_of(b);
    const Terms terms = ByteMatMul::terms(Stack{weights}.rows(), nullptr);
    std::vector<int8_t> panel(static_cast<size_t>(panel_bytes(form_, terms)));
    pack(weights, 0, 1, panel.data());
    return has_high_bounds(panel.data(), terms);
  }

  /// Packs a matrix that is known, once.
  void keep(const OperandInfo& b) {
    if (!is_known(b)) return;
    const TensorRef weights = tensor_of(b);
    packed_bytes_ = bytes_of(weights);
    packed_ = allocate_weights(packed_bytes_);
    pack(weights, static_cast<int8_t*>(packed_.get()));
    drop_pages(*b.constant);
  }

  std::string description() const override { return "own exact bytes, " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return packed_bytes_; }
  bool reads(size_t input) const override { return input != 1 || !packed_; }

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
    const auto a_zero = direct::zero_point<int32_t>(args.inputs, p_.a_zero);
    if (space.rows) copy_rows(a, a_zero, space);
    if (space.panels) pack(b, space.panels);

    const int64_t k = a.sizes.back(), start = 0;
    Product p;
    p.sizes.assign(c.sizes.begin(), c.sizes.end() - 1);
    p.form = form_;
    p.terms = terms(k, &start);
    p.row_zero = zero_number<N>(a.dtype, a_zero);
    p.columns = c.sizes.back();
    if (space.rows) {
      p.rows = space.rows;
      p.row_steps = batch_steps(a.sizes, dense_batch(a.sizes, Stack{a}.rows() * k));
      p.row_steps.push_back(k);
    } else {
      p.bytes = ByteRows{a.data, a.dtype, a_zero, k};
      p.row_steps = batch_steps(a.sizes, a.strides);
      p.row_steps.push_back(Stack{a}.row_step());
    }
    p.panels = space.panels ? space.panels : static_cast<const int8_t*>(packed_.get());
    p.panel_steps = batch_steps(b.sizes, dense_batch(b.sizes, matrix_bytes(b)));
    while (!p.panel_steps.empty() && p.panel_steps.back() == 0) p.panel_steps.pop_back();
    p.outer = p.panel_steps.size();
    p.unsigned_weights = b.dtype == DType::u8;
    p.weight_zero = direct::zero_point<int32_t>(args.inputs, p_.b_zero);
    if (form_ != Form::pairs && p.unsigned_weights) p.weight_zero -= 128; // as the weights (pack_panel)
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
    N* rows; ///< nullptr: they are read where they lie
    int32_t* totals;
    int8_t* panels; ///< nullptr: they are packed already
  };

  Space take(Memory& memory, std::span<const TensorRef> in) const {
    Space space{};
    if (Stack a{in[0]}; a.column_step() != 1 && a.columns() > 1) {
      space.rows = memory.take<N>(in[0].numel() + kSlack);
      space.totals = memory.take<int32_t>(a.count() * a.rows());
    }
    if (!packed_) space.panels = memory.take<int8_t>(bytes_of(in[1]));
    return space;
  }

  Terms terms(int64_t k, const int64_t* start) const { return {start, 1, ceil_div(k, group_of(form_))}; }
  int64_t matrix_bytes(const TensorRef& b) const {
    return panels_of(Stack{b}.columns()) * panel_bytes(form_, terms(Stack{b}.rows(), nullptr));
  }
  int64_t bytes_of(const TensorRef& b) const { return Stack{b}.count() * matrix_bytes(b); }

  void pack(const TensorRef& b, int8_t* to) const {
    const Stack m{b};
    in_pieces(m.count() * panels_of(m.columns()), static_cast<double>(b.numel()),
              [&](int64_t begin, int64_t end) { pack(b, begin, end, to); });
  }

  /// Some of the panels; `to` is the place of the first of all.
  void pack(const TensorRef& b, int64_t begin, int64_t end, int8_t* to) const {
    const Stack m{b};
    const int64_t k = m.rows(), panels = panels_of(m.columns()), down = m.row_step(), along = m.column_step();
    const Terms terms = this->terms(k, nullptr);
    WeightSteps steps{along, {0}, {}};
    for (int64_t l = 0; l < k; ++l) steps.terms.push_back(l * down);
    for (int64_t i = begin; i < end; ++i)
      pack_panel(form_, i % panels, m.columns(), static_cast<const int8_t*>(b.data) + m.at(i / panels),
                 b.dtype, steps, to + i * panel_bytes(form_, terms));
  }

  static void copy_rows(const TensorRef& a, int32_t zero, const Space& space) {
    const Stack m{a};
    const int64_t k = m.columns();
    std::fill_n(space.rows + a.numel(), kSlack, N{0});
    in_pieces(m.count() * m.rows(), static_cast<double>(a.numel()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto* from =
            static_cast<const int8_t*>(a.data) + m.at(i / m.rows()) + i % m.rows() * m.row_step();
        space.totals[i] = to_numbers(from, a.dtype, m.column_step(), k, zero, space.rows + i * k);
      }
    });
  }

  MatMulProblem p_;
  Form form_;
  std::shared_ptr<void> packed_;
  int64_t packed_bytes_ = 0;
};

} // namespace
} // namespace bytes

std::string supports_byte_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs, const Target& target) {
  const auto& p = std::get<MatMulProblem>(problem);
  if (!is_byte(inputs[0].dtype) || !is_byte(inputs[1].dtype)) return "operands that are no bytes";
  if (target.library_isa < Isa::avx2) return "a CPU without AVX2";
  if (p.has_bias || p.alpha != 1) return "a bias or a factor of an integer product";
  if (inputs[1].constant && inputs[1].strides.empty()) return "weights without known strides";
  return bytes::Epilogue::refusal(p.post_ops, inputs, outputs[0].dtype);
}

std::unique_ptr<ExternKernel> make_byte_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo>) {
  return bytes::fastest<bytes::ByteMatMul>(std::get<MatMulProblem>(problem), inputs[1], true);
}

} // namespace tbx::extern_kernels
