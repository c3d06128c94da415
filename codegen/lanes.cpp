// Lane forms of index expressions and the varying/uniform split of value expressions.
#include "codegen/lanes.h"

#include <numeric>
#include <optional>

#include "base/target.h"

namespace tbx::codegen {

using ir::Expr;
using ir::Op;
using ir::SymInt;
using ir::SymKind;
using ir::SymNode;

int64_t known_divisor(SymInt e, const SymNode* variable, int lanes) {
  if (e.is_constant()) return std::abs(e.constant());
  const SymNode& n = *e.node();
  auto of = [&](SymInt x) { return known_divisor(x, variable, lanes); };
  switch (n.kind) {
  case SymKind::var:
  case SymKind::rvar: return e.node() == variable ? lanes : 1;
  case SymKind::add: {
    int64_t g = std::abs(n.constant);
    for (auto& [c, t] : n.terms) {
      int64_t d = 0;
      if (__builtin_mul_overflow(std::abs(c), of(SymInt(t)), &d)) return 1;
      g = std::gcd(g, d);
    }
    return g;
  }
  case SymKind::mul: {
    int64_t p = 1;
    for (SymInt x : n.args)
      if (__builtin_mul_overflow(p, of(x), &p)) return 1;
    return p;
  }
  case SymKind::floordiv: {
    int64_t a = of(n.args[0]);
    auto c = n.args[1].as_constant();
    return c && *c > 0 && a % *c == 0 ? a / *c : 1;
  }
  case SymKind::mod:
  case SymKind::min:
  case SymKind::max: return std::gcd(of(n.args[0]), of(n.args[1]));
  default: return 1;
  }
}

int access_bytes(const ir::KernelBuffer& buffer, SymInt address, const SymNode* variable, int lanes) {
  constexpr int64_t kMost = Gpu::kAccessBytes;
  const int64_t divisor = std::gcd(known_divisor(address, variable, lanes) % kMost, buffer.offset % kMost);
  return static_cast<int>(std::gcd(kMost, divisor * size_of(buffer.dtype)));
}

LaneForm LaneAnalysis::form(SymInt e) {
  if (e.is_constant() || !variable_) return {};
  auto [it, fresh] = forms_.try_emplace(e.node());
  if (fresh) {
    LaneForm f = form_of(*e.node());
    it = forms_.find(e.node());
    it->second = f;
  }
  return it->second;
}

LaneForm LaneAnalysis::form_of(const SymNode& n) {
  const LaneForm varying{LaneForm::varying, 0};
  auto affine = [](SymInt stride) { return stride.is(0) ? LaneForm{} : LaneForm{LaneForm::affine, stride}; };
  switch (n.kind) {
  case SymKind::symbol: return {};
  case SymKind::var:
  case SymKind::rvar: return &n == variable_ ? affine(1) : LaneForm{};
  case SymKind::indirect: {
    return varies(n.value) || varies(n.args[0]) ? varying : LaneForm{};
  }
  case SymKind::add: {
    SymInt stride = 0;
    std::optional<LaneForm> stepping;
    for (auto& [c, t] : n.terms) {
      const LaneForm f = form(SymInt(t));
      stride += SymInt(c) * f.stride;
      if (f.kind != LaneForm::varying) continue;
      if ((f.repeat == 0 && !f.steps) || c != 1 || stepping) return varying;
      stepping = f;
    }
    if (stepping) return stride.is(0) ? *stepping : varying;
    return affine(stride);
  }
  case SymKind::mul: {
    SymInt stride = 1;
    bool seen = false;
    for (SymInt x : n.args) {
      LaneForm f = form(x);
      if (f.kind == LaneForm::varying || (f.kind == LaneForm::affine && seen)) return varying;
      seen |= f.kind == LaneForm::affine;
      stride *= f.kind == LaneForm::affine ? f.stride : x;
    }
    // A stride must not change within the loop; factors that are loop variables would make it do so.
    if (!seen) return {};
    return ir::has_loop_variable(stride) || ir::has_indirect(stride) ? varying : affine(stride);
  }
  case SymKind::floordiv:
  case SymKind::mod: {
    LaneForm a = form(n.args[0]), b = form(n.args[1]);
    if (a.kind == LaneForm::uniform && b.kind == LaneForm::uniform) return {};
    auto s = a.stride.as_constant(), c = n.args[1].as_constant();
    if (a.kind != LaneForm::affine || !s || !c || *c <= 0) return varying;
    bool divide = n.kind == SymKind::floordiv;
    // floor((x + s*l) / c) with c | s moves by s/c per lane.
    if (*s % *c == 0) return divide ? affine(*s / *c) : LaneForm{};
    // x a multiple of s*lanes and s*lanes | c: all lanes lie in one block of c.
    int64_t span = 0;
    if (*s > 0 && !__builtin_mul_overflow(*s, int64_t(lanes_), &span) && *c % span == 0 &&
        known_divisor(n.args[0], variable_, multiple_) % span == 0)
      return divide ? LaneForm{} : affine(*s);
    if (divide && *s == 1 && *c < lanes_ && lanes_ % *c == 0 &&
        known_divisor(n.args[0], variable_, multiple_) % lanes_ == 0)
      return {LaneForm::varying, 0, *c};
    if (divide && *s == 1 && *c >= LaneForm::kLeastStep && *c <= INT32_MAX / 2)
      return {LaneForm::varying, 0, 0, &n};
    return varying;
  }
  case SymKind::min:
  case SymKind::max: {
    bool u = form(n.args[0]).kind == LaneForm::uniform && form(n.args[1]).kind == LaneForm::uniform;
    return u ? LaneForm{} : varying;
  }
  }
  return varying;
}

bool LaneAnalysis::varies(Expr e) {
  if (!variable_ || !e) return false;
  if (auto it = varies_.find(e); it != varies_.end()) return it->second;
  // Operands first, without deep recursion.
  ir::visit(e, [&](Expr x) {
    if (!varies_.contains(x)) varies_[x] = compute_varies(x);
  });
  return varies_.at(e);
}

bool LaneAnalysis::compute_varies(Expr e) {
  for (int i = 0; i < e->num_args; ++i)
    if (varies(e->args[i])) return true;
  for (SymInt i : e->indices)
    if (varies(i)) return true;
  switch (e->op) {
  case Op::accumulator: return accumulators_.contains(e->number);
  case Op::local: return locals_.contains(e->number);
  case Op::load: return buffers_.contains(e->buffer);
  default: return false;
  }
}

} // namespace tbx::codegen
