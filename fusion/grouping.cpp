#include "fusion/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>

#include "base/budget.h"
#include "base/error.h"
#include "fusion/horizontal_fusion.h"

namespace tbx::fusion {

using namespace ir;

namespace {

constexpr int kUnbound = Member::kUnbound, kUnit = Member::kUnit;
constexpr int kMaxMembers = 64; ///< per group: bounds the search
/// Per group, in operations: the time of the C++ compiler grows with the square of a loop's body.
constexpr int kMaxWork = 1000;
constexpr int kExpensive = 16;        ///< operations that a transcendental one amounts to
constexpr int kMaxSearch = 400;       ///< drafts visited by the cycle check before giving up
constexpr int kMaxCandidates = 8;     ///< drafts tried per operation
constexpr double kRowOfThread = 4096; ///< elements: longer rows are cut for the threads, where they are few

int work_of(const Loops& loops) {
  ExprCounts n = count({&loops.body, 1});
  return n.ops + kExpensive * n.expensive;
}

/// A new draft of one operation, loop variables in order.
Draft single(const Program& p, int op) {
  Draft d;
  d.first_op = d.last_op = op;
  const Compute* compute = compute_of(p, op);
  if (!compute || compute->loops.kind == LoopKind::scan) {
    d.fusable = false;
    if (!compute) {
      d.members.push_back({op, {}, {}});
      return d;
    }
  }
  d.work = work_of(compute->loops);
  Member m{op, {}, {}};
  auto add_axes = [&](const SymInts& ranges, std::vector<int>& axis_of, bool inner) {
    for (SymInt extent : ranges) {
      if (extent.is(1)) {
        axis_of.push_back(kUnit);
        continue;
      }
      axis_of.push_back(static_cast<int>(d.axes.size()));
      d.axes.push_back(extent);
      d.inner.push_back(inner);
    }
  };
  add_axes(compute->loops.ranges, m.axis_of_var, false);
  add_axes(compute->loops.reduction_ranges, m.axis_of_rvar, true);
  d.has_reduction = compute->loops.kind == LoopKind::reduction;
  d.members.push_back(std::move(m));
  return d;
}

/// Result of a successful match: the new member and the group's axis classes after it joins.
struct Match {
  Member member;
  std::vector<bool> inner;
  bool has_reduction;
  std::optional<SymInts> axes{}; ///< longer ones than the group has
};

class Grouper {
public:
  Grouper(const Program& program, const Dependencies& deps, const Target& target,
          const ScheduleOptions& options)
      : program_(program), deps_(deps), target_(target), options_(options), horizontal_(program, target) {}

  std::vector<Draft> run() {
    size_t n = program_.operations.size();
    draft_of_.assign(n, -1);
    for (size_t i = 0; i < n; ++i) {
      check_stop_often();
      place(static_cast<int>(i));
    }
    return in_order();
  }

private:
  void place(int op) {
    const Compute* compute = compute_of(program_, op);
    std::string why = "no candidate group shares data";
    if (options_.fuse && compute && compute->loops.kind != LoopKind::scan) {
      for (int candidate : candidates(op)) {
        Draft& d = drafts_[candidate];
        std::string reason;
        auto match = try_match(d, op, *compute, reason);
        if (match && makes_cycle(op, candidate)) {
          match.reset();
          reason = "joining would make the groups depend on each other in a circle";
        }
        if (!match) {
          why = fmt::format("not with group of operation {}: {}", d.first_op, reason);
          continue;
        }
        if (match->axes) HorizontalFusion::widen(d, *match->axes);
        d.members.push_back(std::move(match->member));
        d.work += work_of(compute->loops);
        d.inner = match->inner;
        d.has_reduction = match->has_reduction;
        d.first_op = std::min(d.first_op, op);
        d.last_op = std::max(d.last_op, op);
        d.decisions.push_back(fmt::format("operation {} fused: {}", op, reason));
        draft_of_[op] = candidate;
        return;
      }
    } else if (!options_.fuse) {
      why = "fusion is switched off";
    } else if (!compute) {
      why = "extern call or scatter";
    }
    draft_of_[op] = static_cast<int>(drafts_.size());
    if (compute) horizontal_.begun(draft_of_[op], *compute);
    drafts_.push_back(single(program_, op));
    drafts_.back().decisions.push_back(fmt::format("operation {} starts a group: {}", op, why));
  }

  /// Groups of the producers first (latest first), then groups that read the same buffers.
  std::vector<int> candidates(int op) const {
    std::vector<int> result;
    auto offer = [&](int d) {
      if (drafts_[d].fusable && static_cast<int>(result.size()) < kMaxCandidates &&
          std::find(result.begin(), result.end(), d) == result.end())
        result.push_back(d);
    };
    const auto& pred = deps_.predecessors[op];
    for (size_t i = pred.size(); i-- > 0;) offer(draft_of_[pred[i]]);
    for (BufferId b : deps_.access[op].reads) {
      const auto& readers = deps_.readers[b];
      auto here = std::lower_bound(readers.begin(), readers.end(), op);
      int steps = 0;
      while (here != readers.begin() && steps++ < 4) {
        --here;
        if (draft_of_[*here] >= 0) offer(draft_of_[*here]);
      }
    }
    if (const Compute* compute = compute_of(program_, op))
      if (const int alike = horizontal_.last_alike(*compute); alike >= 0) offer(alike);
    return result;
  }

  /// Binds the loop variables of `op` to the axes of `d`.
  std::optional<Match> try_match(const Draft& d, int op, const Compute& compute, std::string& reason) const {
    if (static_cast<int>(d.members.size()) >= kMaxMembers) {
      reason = "the group is full";
      return std::nullopt;
    }
    if (d.work + work_of(compute.loops) > kMaxWork) {
      reason = fmt::format("together more than {} operations, slow to compile", kMaxWork);
      return std::nullopt;
    }
    const Loops& loops = compute.loops;
    Member m{op, std::vector<int>(loops.ranges.size(), kUnbound),
             std::vector<int>(loops.reduction_ranges.size(), kUnbound)};
    for (size_t k = 0; k < loops.ranges.size(); ++k)
      if (loops.ranges[k].is(1)) m.axis_of_var[k] = kUnit;
    for (size_t k = 0; k < loops.reduction_ranges.size(); ++k)
      if (loops.reduction_ranges[k].is(1)) m.axis_of_rvar[k] = kUnit;

    std::vector<bool> cross(d.axes.size(), false); // read elsewhere along this axis: must be inner
    bool shares = false;
    if (!bind_from_loads(d, loops, m, cross, shares, reason)) return std::nullopt;
    const char* why = shares ? "same points, shared data" : horizontal_.bind(d, compute, m);
    if (!why) {
      auto beside = horizontal_.beside(d, op, loops);
      reason = beside ? "small, beside the group" : "no shared data at the same points";
      if (!beside) return std::nullopt;
      return Match{std::move(beside->member), d.inner, false, std::move(beside->axes)};
    }
    auto match = finish(d, loops, std::move(m), cross, reason);
    if (match && counts_places(loops) && !is_ascending(match->member.axis_of_rvar)) {
      reason = "counts the places of a row in another order";
      return std::nullopt;
    }
    if (match && turns_gathered_rows(d, match->member, compute)) {
      reason = "its rows lie across those that the group gathers";
      return std::nullopt;
    }
    if (match) reason = why;
    return match;
  }

  static bool is_ascending(std::vector<int> axes) {
    std::erase_if(axes, [](int a) { return a < 0; });
    return std::is_sorted(axes.begin(), axes.end());
  }

  /// The axis of the variable behind the dimension of `id` that is contiguous; -1 where there is none.
  int contiguous_axis(BufferId id, const SymInts& indices, const std::vector<int>& axis_of_var) const {
    const SymInts& strides = program_.at(id).strides;
    for (size_t k = 0; k < indices.size() && k < strides.size(); ++k) {
      if (!strides[k].is(1) || indices[k].is_constant() || indices[k].node()->kind != SymKind::var) continue;
      auto v = static_cast<size_t>(indices[k].node()->number);
      if (v < axis_of_var.size() && axis_of_var[v] >= 0) return axis_of_var[v];
    }
    return -1;
  }

  /// The group reads rows at places that data decides, and `m` would write along another axis: in one kernel
  /// either would go element by element, while rows in memory are turned by blocks.
  bool turns_gathered_rows(const Draft& d, const Member& m, const Compute& compute) const {
    const SymInts own = loop_vars(*program_.context, compute.loops.ranges.size());
    const int written = contiguous_axis(compute.output, own, m.axis_of_var);
    if (written < 0 || size_hint(d.axes[written]) < Target::kShortRow) return false;
    bool turns = false;
    for (const Member& member : d.members)
      visit(compute_of(program_, member.op)->loops.body, [&](Expr n) {
        if (n->op != Op::load || std::none_of(n->indices.begin(), n->indices.end(), has_indirect)) return;
        const int read = contiguous_axis(n->buffer, n->indices, member.axis_of_var);
        turns |= read >= 0 && read != written && size_hint(d.axes[read]) >= Target::kShortRow;
      });
    return turns;
  }

  static SymInts loop_vars(Context& c, size_t n) {
    SymInts vars;
    for (size_t k = 0; k < n; ++k) vars.push_back(c.var(static_cast<int>(k)));
    return vars;
  }

  bool bind_from_loads(const Draft& d, const Loops& loops, Member& m, std::vector<bool>& cross, bool& shares,
                       std::string& reason) const {
    std::unordered_map<BufferId, const Member*> made;
    for (const Member& member : d.members) made[compute_of(program_, member.op)->output] = &member;
    bool good = true;
    visit(loops.body, [&](Expr n) {
      if (!good || n->op != Op::load) return;
      auto it = made.find(n->buffer);
      if (it == made.end()) {
        // A slice or the whole of something partly written here cannot be followed.
        for (auto& [id, member] : made)
          if (owner_of(program_, id) == owner_of(program_, n->buffer)) {
            reason = "reads a buffer that the group writes in parts";
            good = false;
          }
        return;
      }
      shares = true;
      const Member& producer = *it->second;
      for (size_t k = 0; k < n->indices.size() && good; ++k) {
        int axis = producer.axis_of_var[k];
        if (axis == kUnit && has_indirect(n->indices[k])) {
          reason = "reads the only element along an axis by an index that is to be checked";
          good = false;
        }
        if (axis == kUnit) continue;
        SymInt e = n->indices[k];
        bool is_plain =
            !e.is_constant() && (e.node()->kind == SymKind::var || e.node()->kind == SymKind::rvar);
        if (is_plain) {
          bool reduced = e.node()->kind == SymKind::rvar;
          auto& axis_of = reduced ? m.axis_of_rvar : m.axis_of_var;
          const SymInts& ranges = reduced ? loops.reduction_ranges : loops.ranges;
          int v = e.node()->number;
          if (v < static_cast<int>(axis_of.size()) && bind_variable(d, axis_of, v, axis, ranges[v])) continue;
        }
        cross[axis] = true;
      }
    });
    return good;
  }

  std::optional<Match> finish(const Draft& d, const Loops& loops, Member m, const std::vector<bool>& cross,
                              std::string& reason) const {
    Match match{std::move(m), d.inner, d.has_reduction};
    auto refused = [&](const char* why) {
      reason = why;
      return std::nullopt;
    };
    if (!bind_rest(d, loops, match.member)) return refused("loops over more than the group's axes");
    const std::vector<int> uses = uses_of(d, match.member);
    if (std::any_of(uses.begin(), uses.end(), [](int n) { return n > 1; }))
      return refused("two loops run over one axis");
    const bool reduces = loops.kind == LoopKind::reduction;
    if (reduces) {
      const std::vector<bool> reduced = reduced_axes(d, match.member);
      if (d.has_reduction && reduced != d.inner) return refused("reduces over other axes than the group");
      if (!d.has_reduction && std::find(reduced.begin(), reduced.end(), true) == reduced.end())
        return refused("a reduction over axes the group does not have");
      match.inner = reduced;
      match.has_reduction = true;
    }
    bool along_rows = false, whole_rows = true;
    for (size_t a = 0; a < d.axes.size(); ++a) {
      const bool is_used = uses[a] > 0;
      if (match.inner[a]) {
        along_rows |= is_used;
        whole_rows &= is_used;
        continue;
      }
      if (!is_used) return refused("does not run over all of the group's rows");
      if (cross[a]) return refused("reads another row of a result of the group");
    }
    if (along_rows && !whole_rows) return refused("runs over part of a row");
    const bool once = reduces && only_reduces(d); // nothing of a row is kept, nothing else runs along it
    if (match.has_reduction && along_rows && !once && !row_worth_it(d, match, reason)) return std::nullopt;
    return match;
  }

  /// How many of the member's variables run over each axis.
  static std::vector<int> uses_of(const Draft& d, const Member& m) {
    std::vector<int> uses(d.axes.size(), 0);
    for (const auto* axes : {&m.axis_of_var, &m.axis_of_rvar})
      for (int a : *axes)
        if (a >= 0) ++uses[a];
    return uses;
  }

  static std::vector<bool> reduced_axes(const Draft& d, const Member& m) {
    std::vector<bool> reduced(d.axes.size(), false);
    for (int a : m.axis_of_rvar)
      if (a >= 0) reduced[a] = true;
    return reduced;
  }

  /// Variables that no load has bound run over the group's inner axes, in order. False where these are too
  /// few.
  static bool bind_rest(const Draft& d, const Loops& loops, Member& m) {
    std::vector<int> uses = uses_of(d, m);
    auto bind = [&](std::vector<int>& axis_of, const SymInts& ranges) {
      for (size_t k = 0; k < axis_of.size(); ++k) {
        if (axis_of[k] != kUnbound) continue;
        size_t a = 0;
        while (a < d.axes.size() && (uses[a] > 0 || !d.inner[a] || !provably_equal(d.axes[a], ranges[k])))
          ++a;
        if (a == d.axes.size()) return false;
        axis_of[k] = static_cast<int>(a);
        uses[a] = 1;
      }
      return true;
    };
    return bind(m.axis_of_rvar, loops.reduction_ranges) && bind(m.axis_of_var, loops.ranges);
  }

  bool only_reduces(const Draft& d) const {
    return std::all_of(d.members.begin(), d.members.end(), [&](const Member& m) {
      return compute_of(program_, m.op)->loops.kind == LoopKind::reduction;
    });
  }

  /// Rows in cache, and enough of them for the threads.
  bool row_worth_it(const Draft& d, const Match& match, std::string& reason) const {
    double rows = 1, row = 1;
    for (size_t a = 0; a < d.axes.size(); ++a)
      (match.inner[a] ? row : rows) *= static_cast<double>(std::max<int64_t>(1, size_hint(d.axes[a])));
    constexpr double kBytes = 4;                                // of an element
    if (row * kBytes > static_cast<double>(target_.l2_bytes)) { // it and its intermediates should stay there
      reason = "a row does not fit the cache";
      return false;
    }
    if (rows < target_.threads && row > kRowOfThread) {
      reason = "too few rows for the threads";
      return false;
    }
    return true;
  }

  /// Would `op` in `candidate` close a cycle: does another predecessor of `op` depend on `candidate`?
  bool makes_cycle(int op, int candidate) const {
    const Draft& target = drafts_[candidate];
    std::vector<int> stack;
    std::unordered_map<int, bool> seen;
    for (int p : deps_.predecessors[op]) {
      int d = draft_of_[p];
      if (d != candidate && drafts_[d].last_op > target.first_op && seen.emplace(d, true).second)
        stack.push_back(d);
    }
    while (!stack.empty()) {
      int d = stack.back();
      stack.pop_back();
      if (static_cast<int>(seen.size()) > kMaxSearch) return true;
      for (const Member& m : drafts_[d].members)
        for (int p : deps_.predecessors[m.op]) {
          int q = draft_of_[p];
          if (q == candidate) return true;
          if (q != d && drafts_[q].last_op > target.first_op && seen.emplace(q, true).second)
            stack.push_back(q);
        }
    }
    return false;
  }

  /// Topological order of the drafts, earliest last operation first among the ready ones.
  std::vector<Draft> in_order() {
    size_t n = drafts_.size();
    std::vector<std::vector<int>> users(n);
    std::vector<int> missing(n, 0);
    for (size_t d = 0; d < n; ++d) {
      std::vector<int> preds;
      for (const Member& m : drafts_[d].members)
        for (int p : deps_.predecessors[m.op])
          if (draft_of_[p] != static_cast<int>(d)) preds.push_back(draft_of_[p]);
      std::sort(preds.begin(), preds.end());
      preds.erase(std::unique(preds.begin(), preds.end()), preds.end());
      missing[d] = static_cast<int>(preds.size());
      for (int p : preds) users[p].push_back(static_cast<int>(d));
    }
    using Entry = std::pair<int, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (size_t d = 0; d < n; ++d)
      if (missing[d] == 0) ready.emplace(drafts_[d].last_op, static_cast<int>(d));
    std::vector<Draft> result;
    result.reserve(n);
    while (!ready.empty()) {
      int d = ready.top().second;
      ready.pop();
      for (int u : users[d])
        if (--missing[u] == 0) ready.emplace(drafts_[u].last_op, u);
      result.push_back(std::move(drafts_[d]));
    }
    TBX_INTERNAL(result.size() == n);
    return result;
  }

  const Program& program_;
  const Dependencies& deps_;
  const Target& target_;
  const ScheduleOptions& options_;
  std::vector<Draft> drafts_;
  std::vector<int> draft_of_;
  HorizontalFusion horizontal_;
};

} // namespace

const Compute* compute_of(const Program& program, int op) {
  return std::get_if<Compute>(&program.operations[op].what);
}

bool bind_variable(const Draft& draft, std::vector<int>& axis_of, int variable, int axis, SymInt extent) {
  if (axis_of[variable] == kUnbound && provably_equal(draft.axes[axis], extent)) axis_of[variable] = axis;
  return axis_of[variable] == axis;
}

std::vector<Draft> group_operations(const Program& program, const Dependencies& deps, const Target& target,
                                    const ScheduleOptions& options) {
  return Grouper(program, deps, target, options).run();
}

} // namespace tbx::fusion
