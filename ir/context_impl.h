// The storage behind Context: arenas of immutable nodes and the tables that make equal nodes the same
// pointer.
#pragma once

#include <deque>
#include <functional>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "ir/expr.h"

namespace tbx::ir {

inline void hash_combine(size_t& seed, size_t value) {
  seed ^= value + 0x9e3779b97f4a7c15ULL + (seed << 12) + (seed >> 4);
  seed *= 0xff51afd7ed558ccdULL;
}

// The hash functors are not noexcept on purpose: libstdc++ then keeps the hash in the table's entries, so
// probing and growing the table never hash a node a second time.
struct SymHash {
  size_t operator()(const SymNode* n) const;
};
struct SymEqual {
  bool operator()(const SymNode* a, const SymNode* b) const;
};
struct ExprHash {
  size_t operator()(Expr e) const;
};
struct ExprEqual {
  bool operator()(Expr a, Expr b) const;
};

struct Context::Impl {
  explicit Impl(Context* context) : context(context) {}

  Context* context;
  std::pmr::monotonic_buffer_resource entries; ///< of the tables, which only grow
  std::deque<SymNode> sym_arena;
  /// What it takes to evaluate a node, written out from left to right.
  struct Formula {
    uint32_t operations = 1; ///< and numbers: what two operands share counts twice
    uint8_t stack = 1;       ///< numbers that are kept at once
  };
  std::vector<Formula> formulas; ///< of the nodes, by id
  std::pmr::unordered_set<const SymNode*, SymHash, SymEqual> sym_table{&entries};
  std::vector<const SymNode*> symbols; // symbols[n]->number == n
  std::unordered_map<std::string, SymNode*> symbol_by_name;
  std::unordered_map<std::string, int> numbered; ///< how often unbacked_symbol() put a number behind a name
  std::vector<const SymNode*> vars, rvars;       // vars[k]->number == k; nullptr: not made yet

  /// Results of floordiv and mod. They are asked for again and again while sums are brought into canonical
  /// form, and nested ones would otherwise cost time exponential in their depth.
  struct DivisionKey {
    SymKind kind;
    SymInt a, b;
    bool operator==(const DivisionKey&) const = default;
  };
  struct DivisionHash {
    size_t operator()(const DivisionKey& k) const {
      size_t h = static_cast<size_t>(k.kind);
      hash_combine(h, k.a.hash());
      hash_combine(h, k.b.hash());
      return h;
    }
  };
  std::pmr::unordered_map<DivisionKey, SymInt, DivisionHash> divisions{&entries};

  Counted memory; ///< of the nodes: what loading a model may take of it is limited

  std::deque<ExprNode> expr_arena;
  std::pmr::unordered_set<Expr, ExprHash, ExprEqual> expr_table{&entries};

  /// The one node equal to `node`, whose `context` and `id` need not be set. Symbols are not interned here.
  const SymNode* intern(SymNode node);
  Expr intern(ExprNode node);

  /// Throws Error (unsupported) for a size that no plan could keep.
  Formula formula_of(const SymNode& n) const;

  /// Puts a node in the arena without looking for an equal one.
  SymNode* make(SymNode node);
};

/// As to_string of a SymInt, with `indirect` giving the text of indirect values: the printer of Expr DAGs
/// keeps its own memory of these, so that nested ones are handled once and not once per level.
std::string index_to_string(SymInt e, const std::function<std::string(const SymNode&)>& indirect);

} // namespace tbx::ir
