#include "fusion/dependencies.h"

#include <algorithm>
#include <unordered_map>

namespace tbx::fusion {
namespace {

using namespace ir;

constexpr size_t kManyParts = 64;

void add_unique(std::vector<BufferId>& list, BufferId id) {
  if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

void collect_reads(const Program& program, Expr e, std::vector<BufferId>& reads) {
  if (!e) return;
  visit(e, [&](Expr n) {
    if (n->op == Op::load) add_unique(reads, owner_of(program, n->buffer));
  });
}

void collect_reads(const Program& program, SymInt e, std::vector<BufferId>& reads) {
  visit(e, [&](const SymNode& n) {
    if (n.kind == SymKind::indirect) collect_reads(program, n.value, reads);
  });
}

/// Operations that bind the unbacked symbols in what an operation computes with.
class Binders {
public:
  explicit Binders(const Program& program) : program_(program) {
    for (size_t i = 0; i < program.operations.size(); ++i)
      if (const auto* call = std::get_if<ExternCall>(&program.operations[i].what))
        for (SymInt s : call->output_symbols) binder_.emplace(s.node(), static_cast<int>(i));
  }

  bool none() const { return binder_.empty(); }

  void collect(SymInt e, std::vector<int>& to) const {
    visit(e, [&](const SymNode& n) {
      if (n.unbacked)
        if (auto it = binder_.find(&n); it != binder_.end()) to.push_back(it->second);
      if (n.kind == SymKind::indirect) collect(n.value, to);
    });
  }

  void collect(Expr e, std::vector<int>& to) const {
    if (!e) return;
    visit(e, [&](Expr n) {
      for (SymInt i : n->indices) collect(i, to);
      if (n->op == Op::load) collect(n->buffer, to);
    });
  }

  void collect(BufferId id, std::vector<int>& to) const {
    for (; id >= 0;) {
      const Buffer& b = program_.at(id);
      for (const SymInts* list : {&b.sizes, &b.strides, &b.slice_start})
        for (SymInt s : *list) collect(s, to);
      id = b.slice_of >= 0 ? b.slice_of : b.overwrites;
    }
  }

  /// Of operation `i`, without itself.
  std::vector<int> of(size_t i) const {
    std::vector<int> to;
    if (none()) return to;
    const Operation& op = program_.operations[i];
    if (const auto* compute = std::get_if<Compute>(&op.what)) {
      for (const SymInts* list : {&compute->loops.ranges, &compute->loops.reduction_ranges})
        for (SymInt s : *list) collect(s, to);
      collect(compute->loops.body, to);
      collect(compute->output, to);
    } else if (const auto* scatter = std::get_if<Scatter>(&op.what)) {
      for (const SymInts* list : {&scatter->ranges, &scatter->indices})
        for (SymInt s : *list) collect(s, to);
      collect(scatter->value, to);
      collect(scatter->mask, to);
      collect(scatter->target, to);
    } else {
      const auto& call = std::get<ExternCall>(op.what);
      for (const ExternOperand& in : call.inputs) {
        for (const SymInts* list : {&in.sizes, &in.coefficients, &in.start})
          for (SymInt s : *list) collect(s, to);
        if (in.buffer >= 0) collect(in.buffer, to);
      }
      for (BufferId out : call.outputs)
        if (out >= 0) collect(out, to);
    }
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
    std::erase(to, static_cast<int>(i));
    return to;
  }

private:
  const Program& program_;
  std::unordered_map<const SymNode*, int> binder_;
};

} // namespace

OpAccess access_of(const Program& program, const Operation& op) {
  OpAccess a;
  if (const auto* compute = std::get_if<Compute>(&op.what)) {
    collect_reads(program, compute->loops.body, a.reads);
    a.writes.push_back(owner_of(program, compute->output));
  } else if (const auto* scatter = std::get_if<Scatter>(&op.what)) {
    collect_reads(program, scatter->value, a.reads);
    collect_reads(program, scatter->mask, a.reads);
    for (SymInt index : scatter->indices) collect_reads(program, index, a.reads);
    BufferId owner = owner_of(program, scatter->target);
    add_unique(a.reads, owner);
    a.writes.push_back(owner);
  } else {
    const auto& call = std::get<ExternCall>(op.what);
    for (const ExternOperand& operand : call.inputs)
      if (operand.buffer >= 0) add_unique(a.reads, owner_of(program, operand.buffer));
    for (BufferId out : call.outputs)
      if (out >= 0) add_unique(a.writes, owner_of(program, out));
  }
  return a;
}

Dependencies analyse(const Program& program) {
  Dependencies d;
  size_t n = program.operations.size(), nb = program.buffers.size();
  d.access.reserve(n);
  d.predecessors.resize(n);
  d.readers.resize(nb);
  d.writers.resize(nb);
  d.is_output.resize(nb, false);
  for (const ProgramOutput& out : program.outputs) d.is_output[owner_of(program, out.buffer)] = true;
  // Of each buffer: what wrote it since the last operation that had to wait for all before it, and who read
  // it.
  std::vector<std::vector<int>> written(nb), read(nb);
  const Binders binders(program);
  for (size_t i = 0; i < n; ++i) {
    d.access.push_back(access_of(program, program.operations[i]));
    auto& pred = d.predecessors[i];
    pred = binders.of(i);
    const auto* scatter = std::get_if<Scatter>(&program.operations[i].what);
    for (BufferId b : d.access[i].reads) {
      pred.insert(pred.end(), written[b].begin(), written[b].end());
      // Many parts and many readers would be a product of both: the next reader waits for this one.
      if (written[b].size() > kManyParts) written[b] = {static_cast<int>(i)};
      d.readers[b].push_back(static_cast<int>(i));
    }
    for (BufferId b : d.access[i].writes) {
      // Only a scatter changes memory that others may have read before; slices of a concat are disjoint. It
      // waits for all before it, and who waits for it need not know those.
      if (scatter) {
        pred.insert(pred.end(), read[b].begin(), read[b].end());
        written[b].clear();
        read[b].clear();
      }
      written[b].push_back(static_cast<int>(i));
      d.writers[b].push_back(static_cast<int>(i));
    }
    for (BufferId b : d.access[i].reads)
      if (written[b].empty() || written[b].back() != static_cast<int>(i))
        read[b].push_back(static_cast<int>(i));
    std::sort(pred.begin(), pred.end());
    pred.erase(std::unique(pred.begin(), pred.end()), pred.end());
    if (!pred.empty() && pred.back() == static_cast<int>(i)) pred.pop_back();
  }
  return d;
}

void remove_operations(Program& program, const std::vector<bool>& gone) {
  size_t kept = 0;
  for (size_t i = 0; i < program.operations.size(); ++i) {
    if (gone[i]) continue;
    if (kept != i) program.operations[kept] = std::move(program.operations[i]);
    ++kept;
  }
  program.operations.resize(kept);
}

void remove_dead_operations(Program& program) {
  Dependencies d = analyse(program);
  std::vector<bool> needed(program.buffers.size(), false);
  for (const ProgramOutput& out : program.outputs) needed[owner_of(program, out.buffer)] = true;
  // Whoever binds a symbol is needed by those that compute with it, even if nobody reads its results.
  const Binders binders(program);
  std::vector<bool> keep(program.operations.size(), false);
  for (const ProgramOutput& out : program.outputs) {
    std::vector<int> binding;
    binders.collect(out.buffer, binding);
    for (int b : binding) keep[b] = true;
  }
  for (size_t i = program.operations.size(); i-- > 0;) {
    const OpAccess& a = d.access[i];
    keep[i] = keep[i] || std::any_of(a.writes.begin(), a.writes.end(), [&](BufferId b) { return needed[b]; });
    if (!keep[i]) continue;
    for (BufferId b : a.reads) needed[b] = true;
    for (int binder : binders.of(i)) keep[binder] = true;
  }
  keep.flip(); // those that go
  remove_operations(program, keep);
}

} // namespace tbx::fusion
