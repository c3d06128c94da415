#include "plain_reference_helper.h"

#include <algorithm>
#include <cmath>

#include "extern_kernels/reference/row_work.h"

namespace tbx::test {

using namespace extern_kernels;

namespace {

using Values = std::vector<double>;

/// By the plain loops, from operands that are double or integers.
Values computed(const Problem& problem, std::vector<Operand> in, Operand out) {
  for (Operand& t : in) t.constant = false;
  std::vector<TensorRef> refs, out_refs{ref_of(out, out.bytes.data())};
  for (Operand& t : in) refs.push_back(ref_of(t, t.bytes.data()));
  extern_kernels::select(problem, infos_of(in), infos_of({out}), Kernels::plain)
      .kernel->run({refs, out_refs});
  return values_of(out);
}

/// Of what is a finite number.
double largest(const Values& values) {
  double most = 0;
  for (double v : values)
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  return most;
}

// How large results are where the terms of their sums do not cancel: the root of the sum of the squares.

/// 0: they are exact, or bounded. The same loops add squares; functions behind the sum are left out, since
/// they are hardly steeper than 1.
template <class P> double size_by_squares(P p, std::vector<Operand> in, const Operand& out) {
  for (Operand& t : in) {
    if (t.present() && t.dtype != DType::f64) return 0; // exact sums
    auto* v = reinterpret_cast<double*>(t.bytes.data());
    for (size_t i = 0; i < t.bytes.size() / sizeof(double); ++i) v[i] *= v[i];
  }
  if constexpr (requires { p.alpha; }) p.alpha *= p.alpha;
  std::vector<PostOp> linear;
  for (PostOp op : p.post_ops) {
    switch (op.kind) {
    case PostOp::relu:
    case PostOp::gelu_erf:
    case PostOp::gelu_tanh:
    case PostOp::silu: continue;
    case PostOp::add:
    case PostOp::sub:
    case PostOp::sum: op.kind = op.kind == PostOp::sub ? PostOp::add : op.kind; break;
    case PostOp::mul: break;
    default: return 0; // what is bounded is smaller than the sum
    }
    linear.push_back(op);
  }
  p.post_ops = std::move(linear);
  return std::sqrt(largest(computed(Problem(p), std::move(in), out)));
}

/// Of one row: x [k] times `weight(l, j)`, n columns of it, to which a bias is added.
template <class Weight>
double size_of_row(const RowWork& work, const Values& x, size_t n, const Weight& weight, Values sums) {
  sums.resize(n, 0);
  Values squares(sums);
  for (double& s : squares) s *= s;
  for (size_t l = 0; l < x.size(); ++l)
    for (size_t j = 0; j < n; ++j) {
      const double term = x[l] * weight(l, j);
      sums[j] += term, squares[j] += term * term;
    }
  double most = 0;
  if (work.gate == RowWork::no_gate) return std::sqrt(largest(squares));
  const size_t half = n / 2, through = work.gate == RowWork::first ? 0 : half;
  for (size_t i = 0; i < half; ++i) { // errors of either factor times the other
    const size_t a = through + i, b = half - through + i;
    most = std::max(most, std::sqrt(squares[a]) * std::fabs(sums[b]) +
                              std::fabs(activated(work.activation, sums[a])) * std::sqrt(squares[b]));
  }
  return most;
}

Values given(const std::vector<Operand>& in, size_t i) {
  return in.size() > i && in[i].present() ? values_of(in[i]) : Values();
}

/// The row as the product reads it.
Values normed(const RowWork& work, const std::vector<Operand>& in, size_t scale) {
  Values x = values_of(in[0]);
  norm_row(work, x, given(in, scale), given(in, scale + 1));
  return x;
}

double size_of_sums(const RowProductProblem& p, const std::vector<Operand>& in) {
  const Values w = values_of(in[1]);
  const auto weight = [&](size_t l, size_t j) {
    return w[l * static_cast<size_t>(in[1].strides[0]) + j * static_cast<size_t>(in[1].strides[1])];
  };
  return size_of_row(p.work, normed(p.work, in, 3), static_cast<size_t>(in[1].sizes[1]), weight,
                     given(in, 2));
}

double size_of_sums(const PackedMatMulProblem& p, const std::vector<Operand>& in) {
  if (in[0].sizes[0] != 1) return 0; // more rows have more results
  const auto n = static_cast<size_t>(p.n), block = static_cast<size_t>(p.block),
             blocks = (static_cast<size_t>(p.k) + block - 1) / block, zero_bytes = (blocks + 1) / 2;
  const Values scales = values_of(in[2]), zeros = given(in, 3);
  auto nibble = [](const Operand& t, size_t begin, size_t i) {
    return static_cast<uint8_t>(t.bytes[begin + i / 2]) >> (i % 2 * 4) & 15;
  };
  const auto weight = [&](size_t l, size_t j) {
    const size_t of = l / block;
    const double zero = zeros.empty()              ? 8
                        : in[3].dtype == DType::u8 ? nibble(in[3], j * zero_bytes, of)
                                                   : zeros[j * blocks + of];
    return (nibble(in[1], j * blocks * block / 2, l) - zero) * scales[j * blocks + of];
  };
  return size_of_row(p.work, normed(p.work, in, 5), n, weight, given(in, 4)) + largest(given(in, 7));
}

double size_of_sums(const Problem& problem, const std::vector<Operand>& in, const Operand& out) {
  if (const auto* p = std::get_if<MatMulProblem>(&problem)) return size_by_squares(*p, in, out);
  if (const auto* p = std::get_if<ConvProblem>(&problem)) return size_by_squares(*p, in, out);
  if (const auto* p = std::get_if<RowProductProblem>(&problem)) return size_of_sums(*p, in);
  if (const auto* p = std::get_if<PackedMatMulProblem>(&problem)) return size_of_sums(*p, in);
  return 0; // means of values, and states that functions bound
}

} // namespace

Reference reference_of(const Problem& problem, const std::vector<Operand>& inputs, const Operand& out) {
  std::vector<Operand> in;
  for (const Operand& t : inputs) in.push_back(widened(t));
  Operand result = widened(out);
  Reference r{computed(problem, in, result), 0};
  r.size = largest(r.values);
  constexpr size_t kFew = 64; // of more, terms of the largest do not cancel
  if (r.values.size() <= kFew) r.size = std::max(r.size, size_of_sums(problem, in, result));
  return r;
}

} // namespace tbx::test
