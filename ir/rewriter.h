// Rewriter: one rewriting of SymInt and Expr DAGs together, every node of either once.
//
// SymInt nodes contain Exprs (indirect values) and Exprs contain SymInts (indices). A walk over one kind that
// started a fresh walk over the other at every crossing would take time exponential in the number of
// crossings; both kinds share their memos here. Expr chains are walked with an explicit stack; SymInt nesting
// is bounded when nodes are made.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <optional>
#include <unordered_map>

#include "ir/expr.h"

namespace tbx::ir {

class Rewriter {
public:
  Rewriter() = default;
  virtual ~Rewriter() = default;
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;
  SymInt operator()(SymInt e);
  Expr operator()(Expr e);

protected:
  /// What takes the node's place, before its operands are looked at; nullopt: rebuild it from rewritten
  /// operands.
  virtual std::optional<SymInt> replacement(const SymNode&) { return std::nullopt; }
  virtual SymInt combine(SymKind kind, SymInt a, SymInt b); ///< floordiv, mod, min, max of rewritten operands
  virtual SymInt multiply(SymInts factors);                 ///< product of rewritten factors
  virtual Expr finish(Expr e) { return e; }                 ///< sees every rebuilt Expr, a load once
  /// Nodes that are known to stay as they are.
  virtual bool is_unaffected(const SymNode&) { return false; }
  /// SymInts are rewritten until they do not change any more, and every operation is combined anew.
  bool to_fixed_point_ = false;

private:
  SymInt rebuild(const SymNode& n);
  Expr rebuild(Expr e);

  std::array<std::byte, 2048> first_; ///< most rewritings are short, and take no memory of the heap
  std::pmr::monotonic_buffer_resource memory_{first_.data(), first_.size()};
  std::pmr::unordered_map<const SymNode*, SymInt> indices_{&memory_};
  std::pmr::unordered_map<Expr, Expr> values_{&memory_};
};

/// substitute() as a Rewriter. `s` must outlive it.
class Substituter : public Rewriter {
public:
  explicit Substituter(const Substitution& s) : s_(s) {}

protected:
  std::optional<SymInt> replacement(const SymNode& n) override;
  bool is_unaffected(const SymNode& n) override;

private:
  const Substitution& s_;
};

namespace symint {
class Prover;
}

/// simplify() as a Rewriter. `extents` must outlive it.
class IndexSimplifier : public Rewriter {
public:
  explicit IndexSimplifier(const Extents& extents);
  ~IndexSimplifier() override;

  bool proves_at_least(SymInt a, SymInt b); ///< a >= b
  bool proves_below(SymInt a, SymInt b);    ///< a < b

protected:
  std::optional<SymInt> replacement(const SymNode& n) override;
  SymInt combine(SymKind kind, SymInt a, SymInt b) override;
  SymInt multiply(SymInts factors) override;

private:
  std::unique_ptr<symint::Prover> prover_;
};

} // namespace tbx::ir
