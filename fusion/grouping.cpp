#include "fusion/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>

#include "base/budget.h"
#include "base/error.h"

namespace tbx::fusion {

using namespace ir;

namespace {

constexpr int kUnbound = -2, kUnit = -1;
constexpr int kMaxMembers = 64; ///< per group: bounds the search
/// Per group, in operations: the time of the C++ compiler grows with the square of a loop's body.
constexpr int kMaxWork = 1000;
constexpr int kExpensive = 16;    ///< operations that a transcendental one amounts to
constexpr int kMaxSearch = 400;   ///< drafts visited by the cycle check before giving up
constexpr int kMaxCandidates = 8; ///< drafts tried per operation

const Compute* compute_of(const Program& p, int op) { return std::get_if<Compute>(&p.operations[op].what); }

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

struct HashRanges {
  size_t operator()(const SymInts& ranges) const {
    size_t h = ranges.size();
    for (SymInt r : ranges) h = h * 31 + r.hash();
    return h;
  }
};

class Grouper {
public:
  Grouper(const Program& program, const Dependencies& deps, const Target& target,
          const ScheduleOptions& options)
      : program_(program), deps_(deps), target_(target), options_(options) {}

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
        if (match->axes) widen(d, *match->axes);
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
    if (compute && is_total(*compute)) last_total_ = draft_of_[op];
    if (compute && is_part(*compute)) last_part_[compute->loops.ranges] = draft_of_[op];
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
    if (const Compute* compute = compute_of(program_, op); compute && is_part(*compute))
      if (auto it = last_part_.find(compute->loops.ranges); it != last_part_.end()) offer(it->second);
    if (const Compute* compute = compute_of(program_, op); compute && is_total(*compute) && last_total_ >= 0)
      offer(last_total_);
    return result;
  }

  /// A reduction to one element.
  static bool is_total(const Compute& compute) {
    return compute.loops.kind == LoopKind::reduction && product(compute.loops.ranges).is(1);
  }

  /// Totals over equal loops that follow each other are one kernel though they share nothing: the smallest
  /// and the largest of what rows gave.
  bool bind_totals(const Draft& d, const Compute& compute, Member& m) const {
    constexpr int kNear = 4;
    const Member& first = d.members.front();
    const Compute* other = compute_of(program_, first.op);
    if (!other || !is_total(*other) || !is_total(compute) || m.op - d.last_op > kNear ||
        other->loops.reduction_ranges != compute.loops.reduction_ranges)
      return false;
    m.axis_of_rvar = first.axis_of_rvar;
    return true;
  }

  /// A part of a concatenation, which nobody reads by itself.
  bool is_part(const Compute& compute) const {
    return compute.loops.kind == LoopKind::pointwise && program_.at(compute.output).slice_of >= 0;
  }

  /// Parts over the same loops are one kernel though they share nothing: keys and values that are appended,
  /// embeddings side by side.
  bool bind_parts(const Draft& d, const Compute& compute, Member& m) const {
    const Compute* first = compute_of(program_, d.members.front().op);
    if (d.has_reduction || !first || !is_part(*first) || !is_part(compute) ||
        first->loops.ranges != compute.loops.ranges)
      return false;
    // Large ones only with what follows at once: whoever reads them finds them in cache, with all that the
    // kernel reads and writes.
    const int64_t large = target_.l2_bytes / 16 / size_of(DType::f32);
    constexpr int kNear = 4;
    constexpr size_t kMostParts = 16; // each is a stream in and one out
    if (d.members.size() >= kMostParts) return false;
    if (m.op - d.last_op > kNear && size_hint(product(compute.loops.ranges)) > large) return false;
    m.axis_of_var = d.members.front().axis_of_var;
    return true;
  }

  /// Small nests over points in the same number of dimensions, of which one may be of another length, are one
  /// kernel of a GPU: the rotation of queries and those of keys, which go into a cache with the values.
  std::optional<Match> beside_of(const Draft& d, int op, const Loops& loops) const {
    constexpr int64_t kMostPoints = 1 << 15; // which start together anyway
    constexpr int kNear = 4;
    if (!target_.cuda || d.has_reduction || op - d.last_op > kNear || loops.kind != LoopKind::pointwise)
      return std::nullopt;
    Match match{{op, std::vector<int>(loops.ranges.size(), kUnit), {}}, d.inner, false, d.axes};
    size_t axis = 0;
    for (size_t k = 0; k < loops.ranges.size(); ++k) {
      const SymInt extent = loops.ranges[k];
      if (extent.is(1)) continue;
      if (axis == d.axes.size() || !extent.is_constant() || !d.axes[axis].is_constant()) return std::nullopt;
      match.member.axis_of_var[k] = static_cast<int>(axis);
      if (extent != d.axes[axis]) {
        if (match.member.short_axis >= 0) return std::nullopt;
        match.member.short_axis = static_cast<int>(axis);
        match.member.end = extent;
        (*match.axes)[axis] = ir::max(extent, d.axes[axis]);
      }
      ++axis;
    }
    const int shorter = match.member.short_axis;
    if (axis != d.axes.size() || product(*match.axes).constant() > kMostPoints) return std::nullopt;
    for (const Member& m : d.members) {
      const Compute* other = compute_of(program_, m.op);
      if (!other || other->loops.kind != LoopKind::pointwise ||
          (m.short_axis >= 0 && shorter >= 0 && m.short_axis != shorter))
        return std::nullopt;
    }
    if (shorter >= 0 && (*match.axes)[shorter] == match.member.end) match.member.short_axis = -1;
    return match;
  }

  /// What ran over all points of an axis ends before it does now.
  static void widen(Draft& d, const SymInts& axes) {
    for (size_t a = 0; a < axes.size(); ++a) {
      if (axes[a] == d.axes[a]) continue;
      for (Member& m : d.members)
        if (m.short_axis < 0) m.short_axis = static_cast<int>(a), m.end = d.axes[a];
      d.axes[a] = axes[a];
    }
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
    std::string why = "same points, shared data";
    if (!shares && !bind_from_common_reads(d, loops, m)) {
      if (bind_parts(d, compute, m)) {
        why = "parts of concatenations over the same loops";
      } else if (bind_totals(d, compute, m)) {
        why = "totals over the same loops";
      } else if (auto beside = beside_of(d, op, loops)) {
        reason = "small, beside the group";
        return beside;
      } else {
        reason = "no shared data at the same points";
        return std::nullopt;
      }
    }
    auto match = finish(d, loops, std::move(m), cross, reason);
    if (match && turns_gathered_rows(d, match->member, compute)) {
      reason = "its rows lie across those that the group gathers";
      return std::nullopt;
    }
    if (match) reason = std::move(why);
    return match;
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

  bool bind(std::vector<int>& axis_of, int k, int axis, const Draft& d, SymInt extent) const {
    if (axis_of[k] == kUnbound) {
      if (!provably_equal(d.axes[axis], extent)) return false;
      axis_of[k] = axis;
      return true;
    }
    return axis_of[k] == axis;
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
        if (axis == kUnit) continue;
        SymInt e = n->indices[k];
        bool is_plain =
            !e.is_constant() && (e.node()->kind == SymKind::var || e.node()->kind == SymKind::rvar);
        if (is_plain) {
          bool reduced = e.node()->kind == SymKind::rvar;
          auto& axis_of = reduced ? m.axis_of_rvar : m.axis_of_var;
          const SymInts& ranges = reduced ? loops.reduction_ranges : loops.ranges;
          int v = e.node()->number;
          if (v < static_cast<int>(axis_of.size()) && bind(axis_of, v, axis, d, ranges[v])) continue;
        }
        cross[axis] = true;
      }
    });
    return good;
  }

  /// Siblings: same loops over the same inputs. Binds positionally when a common buffer is read with equal
  /// indices; else a row and its reduction by the input that both read.
  bool bind_from_common_reads(const Draft& d, const Loops& loops, Member& m) const {
    const Member& first = d.members.front();
    const Compute* other = compute_of(program_, first.op);
    if (!other) return false;
    std::vector<Expr> theirs = loads_of(other->loops), mine = loads_of(loops);
    if (!same_extents(other->loops.ranges, loops.ranges) ||
        !same_extents(other->loops.reduction_ranges, loops.reduction_ranges))
      return bind_row(d, other->loops, theirs, loops, mine, m);
    for (Expr load : mine)
      if (std::find(theirs.begin(), theirs.end(), load) != theirs.end()) {
        m.axis_of_var = first.axis_of_var;
        m.axis_of_rvar = first.axis_of_rvar;
        return true;
      }
    return false;
  }

  static bool same_extents(const SymInts& a, const SymInts& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](SymInt x, SymInt y) { return provably_equal(x, y); });
  }

  /// What a nest reads, without constants.
  std::vector<Expr> loads_of(const Loops& loops) const {
    std::vector<Expr> loads;
    visit(loops.body, [&](Expr n) {
      if (n->op == Op::load && !n->indices.empty() && program_.at(n->buffer).kind != BufferKind::constant)
        loads.push_back(n);
    });
    return loads;
  }

  /// A nest over the elements of rows and a reduction of the same rows, which then are read once. Of the two
  /// one reduces; both read the input at all their points, along its contiguous dimension.
  bool bind_row(const Draft& d, const Loops& other, const std::vector<Expr>& theirs, const Loops& loops,
                const std::vector<Expr>& mine, Member& m) const {
    constexpr int64_t kLeastRow = 64; // shorter ones are done several at a time
    const Loops& reduction = loops.kind == LoopKind::reduction ? loops : other;
    if ((loops.kind == LoopKind::reduction) == (other.kind == LoopKind::reduction)) return false;
    if (reduction.reduction_ranges.size() != 1 || size_hint(reduction.reduction_ranges[0]) < kLeastRow)
      return false;
    for (Expr load : mine)
      for (Expr their : theirs) {
        if (load->buffer != their->buffer || load->mask() || their->mask()) continue;
        const SymInt along = (&reduction == &loops ? load : their)->indices.back();
        if (along != program_.context->rvar(0) || !program_.at(load->buffer).strides.back().is(1)) continue;
        Member bound = m;
        if (!bind_indices(d, d.members.front(), their->indices, loops, load->indices, bound)) continue;
        m = std::move(bound);
        return true;
      }
    return false;
  }

  /// Binds the variables of `mine` to the axes that `theirs` has at the same places; all of them.
  bool bind_indices(const Draft& d, const Member& first, const SymInts& theirs, const Loops& loops,
                    const SymInts& mine, Member& m) const {
    auto variable = [](SymInt i) {
      return !i.is_constant() && (i.node()->kind == SymKind::var || i.node()->kind == SymKind::rvar);
    };
    for (size_t k = 0; k < mine.size(); ++k) {
      if (theirs[k].is_constant() && mine[k] == theirs[k]) continue;
      if (!variable(theirs[k]) || !variable(mine[k])) return false;
      const bool reduced = mine[k].node()->kind == SymKind::rvar;
      const auto& axes = theirs[k].node()->kind == SymKind::rvar ? first.axis_of_rvar : first.axis_of_var;
      const int axis = axes[theirs[k].node()->number], number = mine[k].node()->number;
      const SymInt extent = (reduced ? loops.reduction_ranges : loops.ranges)[number];
      if (axis == kUnit || !bind(reduced ? m.axis_of_rvar : m.axis_of_var, number, axis, d, extent))
        return false;
    }
    auto bound = [](const std::vector<int>& axes) {
      return std::find(axes.begin(), axes.end(), kUnbound) == axes.end();
    };
    return bound(m.axis_of_var) && bound(m.axis_of_rvar);
  }

  std::optional<Match> finish(const Draft& d, const Loops& loops, Member m, const std::vector<bool>& cross,
                              std::string& reason) const {
    Match match{std::move(m), d.inner, d.has_reduction};
    bool reduces = loops.kind == LoopKind::reduction;
    std::vector<int> used(d.axes.size(), 0);
    auto count_used = [&] {
      std::fill(used.begin(), used.end(), 0);
      for (int a : match.member.axis_of_var)
        if (a >= 0) ++used[a];
      for (int a : match.member.axis_of_rvar)
        if (a >= 0) ++used[a];
    };
    count_used();
    // Variables no load has bound run over the group's inner axes, in order.
    auto bind_rest = [&](std::vector<int>& axis_of, const SymInts& ranges) {
      for (size_t k = 0; k < axis_of.size(); ++k) {
        if (axis_of[k] != kUnbound) continue;
        for (size_t a = 0; a < d.axes.size(); ++a)
          if (used[a] == 0 && match.inner[a] && provably_equal(d.axes[a], ranges[k])) {
            axis_of[k] = static_cast<int>(a);
            used[a] = 1;
            break;
          }
        if (axis_of[k] == kUnbound) return false;
      }
      return true;
    };
    if (!bind_rest(match.member.axis_of_rvar, loops.reduction_ranges) ||
        !bind_rest(match.member.axis_of_var, loops.ranges)) {
      reason = "loops over more than the group's axes";
      return std::nullopt;
    }
    count_used();
    for (int u : used)
      if (u > 1) {
        reason = "two loops run over one axis";
        return std::nullopt;
      }
    if (reduces) {
      std::vector<bool> reduced(d.axes.size(), false);
      for (int a : match.member.axis_of_rvar)
        if (a >= 0) reduced[a] = true;
      if (d.has_reduction && reduced != d.inner) {
        reason = "reduces over other axes than the group";
        return std::nullopt;
      }
      if (!d.has_reduction && std::none_of(reduced.begin(), reduced.end(), [](bool b) { return b; })) {
        reason = "a reduction over axes the group does not have";
        return std::nullopt;
      }
      match.inner = reduced;
      match.has_reduction = true;
    }
    int covered_inner = 0, num_inner = 0;
    for (size_t a = 0; a < d.axes.size(); ++a) {
      if (match.inner[a]) {
        ++num_inner;
        covered_inner += used[a];
      } else if (!used[a]) {
        reason = "does not run over all of the group's rows";
        return std::nullopt;
      }
      if (cross[a] && !match.inner[a]) {
        reason = "reads another row of a result of the group";
        return std::nullopt;
      }
    }
    if (covered_inner != 0 && covered_inner != num_inner) {
      reason = "runs over part of a row";
      return std::nullopt;
    }
    const bool once = reduces && only_reduces(d); // nothing of a row is kept, nothing else runs along it
    if (match.has_reduction && covered_inner != 0 && !once && !row_worth_it(d, match, reason))
      return std::nullopt;
    return match;
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
    if (row * 4 > static_cast<double>(target_.l2_bytes)) { // it and its intermediates should stay there
      reason = "a row does not fit the cache";
      return false;
    }
    if (rows < target_.threads && row > 4096) {
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
  std::unordered_map<SymInts, int, HashRanges>
      last_part_;       ///< the last draft that began with a part, by its loops
  int last_total_ = -1; ///< the last draft that began with a total
};

} // namespace

std::vector<Draft> group_operations(const Program& program, const Dependencies& deps, const Target& target,
                                    const ScheduleOptions& options) {
  return Grouper(program, deps, target, options).run();
}

} // namespace tbx::fusion
