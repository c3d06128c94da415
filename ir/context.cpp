// Context: creation of leaves and interning of nodes.
#include <algorithm>

#include "base/error.h"
#include "ir/context_impl.h"
#include "ir/seen.h"

namespace tbx::ir {

size_t SymHash::operator()(const SymNode* n) const {
  size_t h = static_cast<size_t>(n->kind);
  hash_combine(h, static_cast<size_t>(n->number));
  hash_combine(h, static_cast<size_t>(n->constant));
  hash_combine(h, std::hash<const void*>{}(n->value));
  for (auto& [coefficient, term] : n->terms) {
    hash_combine(h, static_cast<size_t>(coefficient));
    hash_combine(h, term->id);
  }
  for (SymInt a : n->args)
    hash_combine(h, a.node() ? ~size_t{a.node()->id} : static_cast<size_t>(a.constant()));
  return h;
}

bool SymEqual::operator()(const SymNode* a, const SymNode* b) const {
  return a->kind == b->kind && a->number == b->number && a->constant == b->constant && a->value == b->value &&
         a->terms == b->terms && a->args == b->args;
}

size_t ExprHash::operator()(Expr e) const {
  size_t h = static_cast<size_t>(e->op);
  hash_combine(h, static_cast<size_t>(e->dtype));
  hash_combine(h, static_cast<size_t>(e->format));
  for (int i = 0; i < e->num_args; ++i) hash_combine(h, e->args[i]->id);
  hash_combine(h, e->bits);
  hash_combine(h, static_cast<size_t>(e->buffer));
  hash_combine(h, static_cast<size_t>(e->number));
  for (SymInt i : e->indices) hash_combine(h, i.hash());
  return h;
}

bool ExprEqual::operator()(Expr a, Expr b) const {
  return a->op == b->op && a->dtype == b->dtype && a->format == b->format && a->num_args == b->num_args &&
         std::equal(a->args, a->args + a->num_args, b->args) && a->bits == b->bits &&
         a->buffer == b->buffer && a->number == b->number && a->indices == b->indices;
}

/// A node in its arena with its entry in the table.
template <class Node> static int64_t bytes_of(const Node& node) {
  constexpr int64_t kEntry = 48;
  int64_t bytes = kEntry + static_cast<int64_t>(sizeof node);
  if constexpr (requires { node.indices; })
    bytes += static_cast<int64_t>(node.indices.size() * sizeof(SymInt));
  else
    bytes += static_cast<int64_t>(node.terms.size() * sizeof node.terms[0] +
                                  node.args.size() * sizeof(SymInt) + node.name.size());
  return bytes;
}

SymNode* Context::Impl::make(SymNode node) {
  const Formula formula = formula_of(node);
  memory.add(bytes_of(node));
  node.context = context;
  formulas.push_back(formula);
  node.id = static_cast<uint32_t>(sym_arena.size());
  return &sym_arena.emplace_back(std::move(node));
}

namespace {

/// Nesting of floordiv, mod, min and max; walks over SymInts recurse this deep. No sensible model comes near.
constexpr int kMaxDepth = 800;
/// Of a size as plans keep it (runtime::SizeExpr): what two operands share is written twice, so n nodes of a
/// model could give 2^n operations; and numbers wait on a stack of so many.
constexpr uint64_t kMaxOperations = 1 << 16;
constexpr int kMaxStack = 64;

/// True when `value` depends on loop variables.
bool expr_varies(Expr value) {
  Seen seen;
  std::vector<Expr> stack{value};
  while (!stack.empty()) {
    Expr e = stack.back();
    stack.pop_back();
    for (SymInt i : e->indices)
      if (!i.is_constant() && i.node()->varies) return true;
    for (int k = 0; k < e->num_args; ++k)
      if (seen.insert(e->args[k])) stack.push_back(e->args[k]);
  }
  return false;
}

void set_derived(SymNode& n) {
  int depth = 0;
  auto add = [&](const SymNode* operand) {
    depth = std::max<int>(depth, operand->depth);
    n.varies |= operand->varies;
    n.has_indirect |= operand->has_indirect;
  };
  for (auto& [coefficient, term] : n.terms) add(term);
  for (SymInt a : n.args)
    if (!a.is_constant()) add(a.node());
  if (n.kind == SymKind::indirect) {
    n.has_indirect = true;
    n.varies |= expr_varies(n.value);
  }
  if (depth >= kMaxDepth)
    throw_unsupported("size or index expressions nest more than {} levels deep", kMaxDepth);
  n.depth = static_cast<uint16_t>(depth + 1);
}

} // namespace

Context::Impl::Formula Context::Impl::formula_of(const SymNode& n) const {
  constexpr Formula kNumber;
  uint64_t operations = 1;
  int stack = 1;
  auto add = [&](const Formula& operand, int below, uint64_t more) {
    operations += operand.operations + more;
    stack = std::max<int>(stack, below + operand.stack);
  };
  for (auto [coefficient, term] : n.terms) {
    add(formulas[term->id], 1, 1);
    if (coefficient != 1) add(kNumber, 2, 1);
  }
  for (size_t i = 0; i < n.args.size(); ++i)
    add(n.args[i].is_constant() ? kNumber : formulas[n.args[i].node()->id], i > 0, i > 0);
  if (!n.varies && !n.has_indirect) { // a size
    if (operations > kMaxOperations)
      throw_unsupported("a size is a formula of more than {} operations", kMaxOperations);
    if (stack > kMaxStack)
      throw_unsupported("the operations of a size nest more than {} levels deep", kMaxStack);
  }
  return {static_cast<uint32_t>(std::min(operations, kMaxOperations + 1)),
          static_cast<uint8_t>(std::min(stack, kMaxStack + 1))};
}

const SymNode* Context::Impl::intern(SymNode node) {
  check_stop_often();
  if (auto it = sym_table.find(&node); it != sym_table.end()) return *it;
  set_derived(node);
  return *sym_table.insert(make(std::move(node))).first;
}

Expr Context::Impl::intern(ExprNode node) {
  check_stop_often();
  if (auto it = expr_table.find(&node); it != expr_table.end()) return *it;
  node.context = context;
  node.id = static_cast<uint32_t>(expr_arena.size());
  memory.add(bytes_of(node));
  return *expr_table.insert(&expr_arena.emplace_back(std::move(node))).first;
}

Context::Context() : impl_(std::make_unique<Impl>(this)) {}
Context::~Context() = default;

SymInt Context::symbol(const std::string& name, int64_t lo, int64_t hi) {
  auto it = impl_->symbol_by_name.try_emplace(name, nullptr).first;
  if (!it->second) {
    SymNode node{};
    node.kind = SymKind::symbol;
    node.number = static_cast<int>(impl_->symbols.size());
    node.name = name;
    it->second = impl_->make(std::move(node));
    impl_->symbols.push_back(it->second);
  }
  SymNode& s = *it->second;
  TBX_MODEL(std::max(s.lo, lo) <= std::min(s.hi, hi), "size '{}' cannot be both in [{}, {}] and in [{}, {}]",
            name, s.lo, s.hi, lo, hi);
  s.lo = std::max(s.lo, lo);
  s.hi = std::min(s.hi, hi);
  return SymInt(&s);
}

SymInt Context::unbacked_symbol(const std::string& hint, int64_t lo, int64_t hi) {
  std::string name = hint;
  if (impl_->symbol_by_name.contains(name))
    for (int& k = impl_->numbered[hint]; impl_->symbol_by_name.contains(name);)
      name = hint + "." + std::to_string(++k);
  SymInt s = symbol(name, lo, hi);
  impl_->symbol_by_name[name]->unbacked = true;
  return s;
}

static SymInt loop_variable(Context::Impl& impl, std::vector<const SymNode*>& table, SymKind kind, int k) {
  TBX_INTERNAL(k >= 0);
  if (table.size() <= static_cast<size_t>(k)) table.resize(k + 1);
  if (!table[k]) {
    SymNode node{};
    node.kind = kind;
    node.number = k;
    node.varies = true;
    table[k] = impl.make(std::move(node));
  }
  return SymInt(table[k]);
}

SymInt Context::var(int k) { return loop_variable(*impl_, impl_->vars, SymKind::var, k); }
SymInt Context::rvar(int k) { return loop_variable(*impl_, impl_->rvars, SymKind::rvar, k); }

SymInt Context::indirect(Expr value, SymInt extent, bool wrap, int origin) {
  if (value->op == Op::constant || value->op == Op::index) {
    SymInt e = value->op == Op::constant ? SymInt(value->as_int()) : value->indices[0];
    if (wrap && e.is_constant() && e.constant() < 0) e = e + extent;
    if (provably_nonnegative(e) && provably_less(e, extent)) return e;
  }
  const bool nonnegative = value->op == Op::index ? provably_nonnegative(value->indices[0])
                                                  : value->op == Op::constant && value->as_int() >= 0;
  if (wrap && !nonnegative) {
    Expr is_negative = binary(Op::less, value, constant_int(DType::i64, 0));
    value = where(is_negative, binary(Op::add, value, index(extent)), value);
  }
  SymNode node{};
  node.kind = SymKind::indirect;
  node.value = value;
  node.args = {extent};
  node.origin = origin;
  return SymInt(impl_->intern(std::move(node)));
}

const std::vector<const SymNode*>& Context::symbols() const { return impl_->symbols; }

} // namespace tbx::ir
