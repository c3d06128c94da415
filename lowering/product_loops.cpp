#include "lowering/product_loops.h"

#include <fmt/format.h>

#include "ir/differentiate.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {
namespace {

using extern_kernels::ConvProblem;
using extern_kernels::MatMulProblem;

class Products {
public:
  Products(const ir::Program& program, const ir::ExternCall& call)
      : p_(program), c_(*program.context), call_(call), out_(program.at(call.outputs.at(0))),
        at_(loop_vars(c_, static_cast<int>(out_.sizes.size()))) {
    for (const ir::ExternOperand& in : call.inputs)
      if (in.buffer < 0 || !is_float(p_.at(in.buffer).dtype)) refuse();
    if (!is_float(out_.dtype) || !call.output_sizes.empty()) refuse();
  }

  [[noreturn]] void refuse() const {
    throw ir::NoDerivative{fmt::format("its lowering calls the kernel {}", name_of(call_.problem))};
  }

  std::vector<ir::Compute> matmul(const MatMulProblem& m) {
    if (!m.post_ops.empty() || m.a_zero >= 0 || m.b_zero >= 0) refuse();
    const size_t rank = at_.size();
    const SymInt inner = call_.inputs[0].sizes[rank - 1];
    SymInts left = at_, right = at_;
    left[rank - 1] = right[rank - 2] = c_.rvar(0);
    for (size_t d = 0; d + 2 < rank; ++d) {
      left[d] = broadcast(0, d);
      right[d] = broadcast(1, d);
    }
    Expr product = ir::mul(element(0, left), element(1, right));
    if (m.alpha != 1) product = ir::mul(product, number(product, m.alpha));
    std::vector<ir::Compute> loops{nest(product, {inner})};
    if (m.has_bias) {
      SymInts place;
      for (size_t d = 0; d < rank; ++d) place.push_back(broadcast(2, d));
      loops.push_back(nest(element(2, place), {}));
    }
    return loops;
  }

  std::vector<ir::Compute> conv(const ConvProblem& v) {
    if (v.transposed || !v.post_ops.empty() || v.x_zero >= 0) refuse();
    const SymInts &x = call_.inputs[0].sizes, &w = call_.inputs[1].sizes;
    const SymInt rows = ir::floordiv(w[0], SymInt(v.group)); // results of a group
    SymInts taps(w.begin() + 1, w.end()), from{at_[0], ir::floordiv(at_[1], rows) * w[1] + c_.rvar(0)},
        weight{at_[1], c_.rvar(0)};
    Expr inside = nullptr;
    for (size_t d = 0; d < v.strides.size(); ++d) {
      const SymInt tap = c_.rvar(static_cast<int>(d) + 1);
      weight.push_back(tap);
      from.push_back(at_[d + 2] * SymInt(v.strides[d]) + tap * SymInt(v.dilations[d]) -
                     SymInt(v.pads_begin[d]));
      Expr place = c_.index(from.back());
      Expr here =
          ir::binary(Op::logical_and, ir::binary(Op::greater_equal, place, c_.constant_int(DType::i64, 0)),
                     ir::binary(Op::less, place, c_.index(x[d + 2])));
      inside = inside ? ir::binary(Op::logical_and, inside, here) : here;
    }
    Expr value = element(0, from);
    if (inside) value = ir::mask_loads(value, inside);
    std::vector<ir::Compute> loops{nest(ir::mul(value, element(1, weight)), taps)};
    if (v.has_bias) loops.push_back(nest(element(2, {at_[1]}), {}));
    return loops;
  }

private:
  /// The index along dimension `d` of an operand that is 1 or as large as the result there.
  SymInt broadcast(size_t operand, size_t d) const {
    const SymInt size = call_.inputs[operand].sizes[d];
    if (size.is(1)) return 0;
    if (!ir::provably_equal(size, out_.sizes[d])) refuse();
    return at_[d];
  }

  /// The element of an operand, which is a view of a buffer.
  Expr element(size_t operand, const SymInts& at) {
    const ir::ExternOperand& in = call_.inputs[operand];
    const ir::Buffer& b = p_.at(in.buffer);
    const size_t rank = b.sizes.size();
    SymInts place = in.start;
    for (size_t d = 0; d < at.size(); ++d)
      for (size_t k = 0; k < rank; ++k) place[k] += in.coefficients[d * rank + k] * at[d];
    if (!b.strides.empty()) { // dimensions were regrouped: the address counts
      SymInt address = 0;
      for (size_t k = 0; k < rank; ++k) address += place[k] * b.strides[k];
      for (size_t k = 0; k < rank; ++k) {
        const bool empty = b.strides[k].is(0) || b.sizes[k].is(0);
        place[k] = empty ? SymInt(0) : ir::floordiv(address, b.strides[k]);
        if (k > 0 && !empty) place[k] = ir::mod(place[k], b.sizes[k]);
      }
    }
    return to_compute(c_.load(b.id, compute_type(b.dtype), place), out_.dtype);
  }

  ir::Compute nest(Expr body, SymInts reduced) {
    ir::Loops l;
    l.kind = reduced.empty() ? ir::LoopKind::pointwise : ir::LoopKind::reduction;
    l.ranges = out_.sizes;
    l.reduction_ranges = std::move(reduced);
    l.dtype = out_.dtype;
    l.body = ir::simplify(body, l.extents());
    return {std::move(l), out_.id};
  }

  const ir::Program& p_;
  ir::Context& c_;
  const ir::ExternCall& call_;
  const ir::Buffer& out_;
  SymInts at_;
};

} // namespace

std::vector<ir::Compute> as_loops(const ir::Program& program, const ir::ExternCall& call) {
  Products products(program, call);
  if (const auto* m = std::get_if<MatMulProblem>(&call.problem)) return products.matmul(*m);
  if (const auto* v = std::get_if<ConvProblem>(&call.problem)) return products.conv(*v);
  products.refuse();
}

} // namespace tbx::lowering
