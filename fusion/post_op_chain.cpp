#include "fusion/post_op_chain.h"

#include <cmath>
#include <set>

#include "ir/activations.h"

namespace tbx::fusion {

using namespace ir;
using extern_kernels::PostOp;

namespace {

/// True when `root` still reaches `needle` on a path that avoids `gate`.
bool reaches_around(Expr root, Expr needle, Expr gate) {
  std::unordered_set<Expr> seen;
  std::vector<Expr> stack{root};
  while (!stack.empty()) {
    Expr n = stack.back();
    stack.pop_back();
    if (n == gate || !seen.insert(n).second) continue;
    if (n == needle) return true;
    for (int i = 0; i < n->num_args; ++i) stack.push_back(n->args[i]);
  }
  return false;
}

std::optional<double> constant_of(Expr e) {
  if (e->op != Op::constant || e->dtype != DType::f32) return std::nullopt;
  return e->as_double();
}

/// The bytes that `e`, a float without scale, is made of.
std::optional<Dequantised> bytes_behind(Expr e) {
  if (e->op != Op::cast || e->dtype != DType::f32) return std::nullopt;
  Expr inner = e->args[0];
  Dequantised d{inner};
  if (inner->op == Op::sub && inner->args[1]->op == Op::constant && inner->args[0]->op == Op::cast) {
    d.zero = static_cast<double>(inner->args[1]->as_int());
    d.load = inner->args[0]->args[0];
  }
  if (d.load->op != Op::load || !is_byte(d.load->dtype)) return std::nullopt;
  return d;
}

/// The same of a float that may be scaled by a constant, by which others are divided without leaving the
/// range of float32.
std::optional<Dequantised> dequantised(Expr e) {
  constexpr double kMost = 0x1p40;
  if (e->op != Op::mul) return bytes_behind(e);
  for (int i = 0; i < 2; ++i) {
    auto scale = constant_of(e->args[i]);
    auto d = bytes_behind(e->args[1 - i]);
    if (!scale || !d || !(std::fabs(*scale) <= kMost && std::fabs(*scale) >= 1 / kMost)) continue;
    d->scale = *scale;
    return d;
  }
  return std::nullopt;
}

/// An activation that is one post-operation.
struct WholeActivation {
  Op rare; ///< one of its operations: who does not have it has no use for the activation
  PostOp op;
  Expr (*of)(Expr x);
};

constexpr WholeActivation kWholeActivations[] = {
    {Op::erf, {PostOp::gelu_erf}, gelu_erf},
    {Op::tanh, {PostOp::gelu_tanh}, gelu_tanh},
    {Op::sigmoid, {PostOp::silu, 1}, [](Expr x) { return silu(x); }},
    {Op::min, {PostOp::hard_swish}, hard_swish},
    {Op::min, {PostOp::hard_sigmoid, 1.0f / 6, 0.5f}, [](Expr x) { return hard_sigmoid(x, 1.0 / 6, 0.5); }},
    {Op::min, {PostOp::hard_sigmoid, 0.2f, 0.5f}, [](Expr x) { return hard_sigmoid(x, 0.2, 0.5); }},
    {Op::max, {PostOp::relu}, relu},
    {Op::round_even, {PostOp::round}, [](Expr x) { return unary(Op::round_even, x); }},
    {Op::sigmoid, {PostOp::sigmoid}, [](Expr x) { return unary(Op::sigmoid, x); }},
    {Op::tanh, {PostOp::tanh}, [](Expr x) { return unary(Op::tanh, x); }},
};

/// leaky_relu and clip carry a number: read it from the node and compare with the spelled form.
std::optional<Link> parametric_link(Expr cur, Expr user) {
  if (user->op == Op::where && user->num_args == 3 && user->args[2] == cur && user->args[1]->op == Op::mul) {
    for (int i = 0; i < 2; ++i)
      if (auto a = constant_of(user->args[1]->args[i]); a && leaky_relu(cur, *a) == user)
        return Link{user, {PostOp::leaky_relu, static_cast<float>(*a)}};
  }
  if (user->op == Op::min || user->op == Op::max) {
    Op outer = user->op, inner = outer == Op::min ? Op::max : Op::min;
    for (int i = 0; i < 2; ++i) {
      auto bound = constant_of(user->args[i]);
      Expr rest = user->args[1 - i];
      if (!bound || rest->op != inner) continue;
      for (int j = 0; j < 2; ++j) {
        auto other = constant_of(rest->args[j]);
        if (!other || rest->args[1 - j] != cur) continue;
        double lo = outer == Op::min ? *other : *bound, hi = outer == Op::min ? *bound : *other;
        if (lo <= hi) return Link{user, {PostOp::clip, static_cast<float>(lo), static_cast<float>(hi)}};
      }
    }
  }
  return std::nullopt;
}

/// Every index is one loop variable or a constant, no variable twice, in increasing order, and the
/// dimension is as long as the loop.
bool is_broadcast_read(Expr load) {
  if (load->op != Op::load || load->mask()) return false;
  int last = -1;
  for (SymInt index : load->indices) {
    if (index.is(0)) continue;
    if (index.is_constant() || index.node()->kind != SymKind::var || index.node()->number <= last)
      return false;
    last = index.node()->number;
  }
  return true;
}

} // namespace

void append_step(std::vector<PostOp>& steps, PostOp step) {
  auto is_linear = [](const PostOp& op) { return op.kind == PostOp::linear; };
  if (!is_linear(step) || steps.empty()) return steps.push_back(step);
  PostOp& last = steps.back();
  if (const size_t n = steps.size(); n >= 3 && last.kind == PostOp::clip && is_linear(steps[n - 2]) &&
                                     steps[n - 3].kind == PostOp::round && steps[n - 2].alpha == 1 &&
                                     steps[n - 2].beta == std::rint(steps[n - 2].beta)) {
    const float zero = steps[n - 2].beta;
    step.beta += step.alpha * zero;
    steps[n - 2] = {PostOp::clip, last.alpha - zero, last.beta - zero};
    steps.back() = step;
    return;
  }
  if (!is_linear(last)) return steps.push_back(step);
  const auto alpha = static_cast<float>(double{last.alpha} * step.alpha);
  const auto beta = static_cast<float>(double{last.beta} * step.alpha + step.beta);
  if (!std::isnormal(alpha) || !std::isfinite(beta)) return steps.push_back(step);
  last.alpha = alpha;
  last.beta = beta;
}

ChainMatcher::ChainMatcher(Expr root, Expr product, bool integers)
    : root_(root), product_(product), integers_(integers) {
  visit(root, [&](Expr n) {
    nodes_.push_back(n);
    operations_.insert(n->op);
  });
  present_.insert(nodes_.begin(), nodes_.end());
}

std::optional<Link> ChainMatcher::next(Expr cur) const {
  // Before relu, with which a clip at 0 begins.
  for (Expr user : nodes_)
    if (auto link = parametric_link(cur, user); link && usable(cur, *link)) return link;
  for (const WholeActivation& activation : kWholeActivations) {
    if (!operations_.contains(activation.rare)) continue;
    if (const Link link{activation.of(cur), activation.op}; usable(cur, link)) return link;
  }
  for (Expr user : nodes_) {
    if (user->num_args != 2 || (user->args[0] != cur && user->args[1] != cur)) continue;
    if (auto link = binary_link(cur, user); link && usable(cur, *link)) return link;
  }
  return std::nullopt;
}

Expr ChainMatcher::as_f32(Expr sum) const {
  Expr cast = sum->context->cast(sum, DType::f32);
  return present_.count(cast) && !reaches_around(root_, sum, cast) ? cast : nullptr;
}

std::optional<std::pair<Expr, Dequantised>> ChainMatcher::as_dequantised(Expr bytes) const {
  for (Expr user : nodes_)
    if (auto d = bytes_behind(user); d && d->load == bytes && !reaches_around(root_, bytes, user))
      return std::pair(user, *d);
  return std::nullopt;
}

bool ChainMatcher::usable(Expr cur, const Link& link) const {
  // relu of what is not negative folds to the value itself: no step forward.
  return link.next != cur && present_.count(link.next) && !reaches_around(root_, cur, link.next);
}

std::optional<Link> ChainMatcher::binary_link(Expr cur, Expr user) const {
  int side = user->args[0] == cur ? 0 : 1;
  Expr other = user->args[1 - side];
  if (other == cur || user->dtype != DType::f32) return std::nullopt;
  if (auto c = constant_of(other)) {
    auto value = static_cast<float>(*c);
    switch (user->op) {
    case Op::add: return Link{user, {PostOp::linear, 1, value}};
    case Op::mul: return Link{user, {PostOp::linear, value, 0}};
    case Op::sub:
      return side == 0 ? Link{user, {PostOp::linear, 1, -value}} : Link{user, {PostOp::linear, -1, value}};
    case Op::div:
      // The inverse of what is hardly a number is infinite, or has fewer digits.
      if (side != 0 || !std::isnormal(1 / value)) return std::nullopt;
      return Link{user, {PostOp::linear, 1 / value, 0}};
    default: return std::nullopt;
    }
  }
  if (integers_ && user->op == Op::add)
    if (auto d = dequantised(other); d && d->load->buffer != product_->buffer && is_broadcast_read(d->load))
      return Link{user, {PostOp::add}, d->load, d};
  if (!is_broadcast_read(other) && !(integers_ && moves_with_one(other))) return std::nullopt;
  switch (user->op) {
  case Op::add: return Link{user, {PostOp::add}, other};
  case Op::mul: return Link{user, {PostOp::mul}, other};
  case Op::sub: return side == 0 ? std::optional(Link{user, {PostOp::sub}, other}) : std::nullopt;
  case Op::div: return side == 0 ? std::optional(Link{user, {PostOp::div}, other}) : std::nullopt;
  default: return std::nullopt;
  }
}

/// Work of its own, the same for all points but for one loop variable: a kernel makes a vector of it.
bool ChainMatcher::moves_with_one(Expr e) const {
  std::set<int> variables;
  bool simple = e->op != Op::load && e->op != Op::constant;
  visit(e, [&](Expr n) {
    simple &= n->op != Op::index && n->op != Op::accumulator && n->op != Op::local;
    if (n->op != Op::load) return;
    simple &= n->buffer != product_->buffer && is_broadcast_read(n);
    for (SymInt index : n->indices)
      if (!index.is_constant()) variables.insert(index.node()->number);
  });
  return simple && variables.size() <= 1;
}

} // namespace tbx::fusion
