#include "fusion/fold_operations.h"

#include <algorithm>

#include "base/error.h"
#include "fusion/dependencies.h"
#include "lowering/reference_run.h"

namespace tbx::fusion {

using namespace ir;

namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;   ///< of all results together
constexpr int64_t kMaxWork = int64_t{1} << 27;     ///< operations on elements: a fraction of a second
constexpr int64_t kMaxElements = int64_t{1} << 24; ///< of one result

bool has_symbols(SymInt e) {
  bool found = false;
  visit(e, [&](const SymNode& n) { found |= n.kind == SymKind::symbol; });
  return found;
}

/// Operations on elements; -1 where a run decides the sizes, or an address.
int64_t work_of(const SymInts& ranges, const SymInts& reduced, std::initializer_list<Expr> bodies) {
  const auto points = product(ranges).as_constant(), each = product(reduced).as_constant();
  if (!points || !each || *points > kMaxElements || *each > kMaxWork / std::max<int64_t>(*points, 1))
    return -1;
  int64_t operations = 1;
  bool closed = true;
  for (Expr body : bodies) {
    if (!body) continue;
    operations += count({&body, 1}).ops;
    visit(body, [&](Expr n) {
      for (SymInt i : n->indices) closed &= !has_symbols(i);
    });
  }
  return closed ? *points * *each * operations : -1;
}

int64_t work_of(const Operation& op) {
  if (const auto* compute = std::get_if<Compute>(&op.what)) {
    const Loops& l = compute->loops;
    return work_of(l.ranges, l.reduction_ranges, {l.body});
  }
  if (const auto* scatter = std::get_if<Scatter>(&op.what)) {
    for (SymInt i : scatter->indices)
      if (has_symbols(i)) return -1;
    return work_of(scatter->ranges, {}, {scatter->value, scatter->mask});
  }
  return -1; // libraries are chosen for a machine, and random numbers are drawn by calls
}

/// The buffers that an operation names in loads, without going on to what owns their memory.
std::vector<BufferId> named_reads(const Operation& op) {
  std::vector<BufferId> ids;
  auto expression = [&](Expr e) {
    if (!e) return;
    visit(e, [&](Expr n) {
      if (n->op == Op::load) ids.push_back(n->buffer);
    });
  };
  if (const auto* compute = std::get_if<Compute>(&op.what)) {
    expression(compute->loops.body);
  } else if (const auto* scatter = std::get_if<Scatter>(&op.what)) {
    expression(scatter->value);
    expression(scatter->mask);
    for (SymInt i : scatter->indices)
      visit(i, [&](const SymNode& n) {
        if (n.kind == SymKind::indirect) expression(n.value);
      });
    ids.push_back(scatter->target);
  } else {
    for (const ExternOperand& in : std::get<ExternCall>(op.what).inputs)
      if (in.buffer >= 0) ids.push_back(in.buffer);
  }
  return ids;
}

class Folder {
public:
  explicit Folder(Program& program) : program_(program), deps_(analyse(program)) {}

  int run() {
    if (program_.operations.empty()) return 0;
    find_candidates();
    while (drop_what_reads_more() || drop_what_is_seen_in_parts() || drop_what_is_too_large()) {
    }
    const int count = static_cast<int>(std::count(folds_.begin(), folds_.end(), true));
    return count > 0 && evaluate() ? count : 0;
  }

private:
  void find_candidates() {
    int64_t left = kMaxWork;
    folds_.assign(program_.operations.size(), false);
    for (size_t i = 0; i < folds_.size(); ++i) {
      if (!reads_constants(i)) continue;
      const int64_t work = work_of(program_.operations[i]);
      if (work < 0 || work > left) continue;
      left -= work;
      folds_[i] = true;
    }
  }

  /// All that operation `i` reads is constant, or computed before it by operations that fold.
  bool reads_constants(size_t i) const {
    return std::all_of(deps_.access[i].reads.begin(), deps_.access[i].reads.end(), [&](BufferId b) {
      const auto& writers = deps_.writers[b];
      if (program_.at(b).kind == BufferKind::constant) return true;
      return !writers.empty() && std::all_of(writers.begin(), writers.end(),
                                             [&](int w) { return folds_[w] || w >= static_cast<int>(i); });
    });
  }

  bool drop_writers(BufferId owner) {
    bool dropped = false;
    for (int w : deps_.writers[owner]) {
      dropped |= folds_[w];
      folds_[w] = false;
    }
    return dropped;
  }

  bool drop_what_reads_more() {
    bool dropped = false;
    for (size_t i = 0; i < folds_.size(); ++i) {
      if (!folds_[i]) continue;
      const BufferId owner = deps_.access[i].writes.front();
      const auto& writers = deps_.writers[owner];
      const bool all_fold = std::all_of(writers.begin(), writers.end(), [&](int w) { return folds_[w]; });
      if (all_fold && !deps_.is_output[owner] && reads_constants(i)) continue;
      dropped |= drop_writers(owner);
    }
    return dropped;
  }

  /// Operations that stay may read results whole, and as they are after the last store.
  bool drop_what_is_seen_in_parts() {
    bool dropped = false;
    for (size_t i = 0; i < folds_.size(); ++i) {
      if (folds_[i]) continue;
      for (BufferId id : named_reads(program_.operations[i])) {
        const BufferId owner = owner_of(program_, id);
        const auto& writers = deps_.writers[owner];
        if (writers.empty() || !folds_[writers.front()]) continue;
        bool part = writers.back() > static_cast<int>(i);
        for (BufferId b = id; b != owner; b = program_.at(b).overwrites) {
          part |= program_.at(b).slice_of >= 0;
          if (part) break;
        }
        if (part) dropped |= drop_writers(owner);
      }
    }
    return dropped;
  }

  bool drop_what_is_too_large() {
    int64_t bytes = 0;
    for (BufferId b : results()) {
      const int64_t n = product(program_.at(b).sizes).as_constant().value_or(kMaxElements + 1);
      if (n <= kMaxElements) bytes += n * size_of(program_.at(b).dtype);
      if ((n > kMaxElements || bytes > kMaxBytes) && drop_writers(b)) return true;
    }
    return false;
  }

  /// The memory that is computed by what folds and read by what stays.
  std::vector<BufferId> results() const {
    std::vector<BufferId> found;
    for (BufferId b = 0; b < static_cast<BufferId>(program_.buffers.size()); ++b) {
      const auto& writers = deps_.writers[b];
      if (writers.empty() || !folds_[writers.front()]) continue;
      if (std::any_of(deps_.readers[b].begin(), deps_.readers[b].end(), [&](int r) { return !folds_[r]; }))
        found.push_back(b);
    }
    return found;
  }

  bool evaluate() {
    Program part;
    part.context = program_.context;
    part.buffers = program_.buffers;
    for (size_t i = 0; i < folds_.size(); ++i)
      if (folds_[i]) part.operations.push_back(program_.operations[i]);
    const std::vector<BufferId> found = results();
    for (BufferId b : found) part.outputs.push_back({"", b});
    std::vector<Tensor> values;
    try {
      values = lowering::run_program(part, {});
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::internal) throw;
      return false; // an index that is out of range: a run says so, with the node
    }
    for (size_t i = 0; i < found.size(); ++i) {
      auto value = std::make_shared<const Tensor>(std::move(values[i]));
      for (Buffer& b : program_.buffers)
        if (owner_of(part, b.id) == found[i] && part.at(b.id).slice_of < 0) {
          b.kind = BufferKind::constant;
          b.constant = value;
          b.overwrites = -1;
        }
    }
    remove_operations(program_, folds_);
    return true;
  }

  Program& program_;
  Dependencies deps_;
  std::vector<bool> folds_; ///< by operation
};

} // namespace

int fold_operations(Program& program) { return Folder(program).run(); }

} // namespace tbx::fusion
