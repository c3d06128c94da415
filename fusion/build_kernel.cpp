#include "fusion/build_kernel.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "ir/merge_loops.h"
#include "ir/scan.h"

namespace tbx::fusion {

using namespace ir;

namespace {

/// Levels order the phases: even levels run once per row, odd levels run over the inner axes.
constexpr bool is_row_level(int level) { return level % 2 == 0; }

/// Votes for the axis along which memory is contiguous, of a result and of all reads at places that data
/// decides; other reads have one each.
constexpr double kStored = 4, kGathered = 2;

/// What the group knows of a buffer it computes.
struct Made {
  const Member* member = nullptr;
  bool full = false; ///< one value per inner point (else one per row)
  bool reduction = false;
  int level = 0;        ///< where the value is computed
  Expr value = nullptr; ///< usable at the same point of the same level (full) or at later levels (row values)
  bool stored = false;  ///< in global memory
  int row_local = -1;   ///< kernel buffer, when kept per row
};

class KernelBuilder {
public:
  KernelBuilder(const Program& program, const Dependencies& deps, const SizeFacts& facts, const Draft& draft)
      : program_(program), deps_(deps), facts_(facts), draft_(draft), c_(*program.context) {}

  KernelProgram build() {
    kernel_.context = program_.context;
    if (const auto* scatter = std::get_if<Scatter>(&program_.operations[draft_.first_op].what)) {
      build_scatter(*scatter);
      return finish();
    }
    const Compute& first = std::get<Compute>(program_.operations[draft_.members.front().op].what);
    if (first.loops.kind == LoopKind::scan) {
      build_scan(first);
      return finish();
    }
    order_axes();
    find_needs();
    for (const Member& m : draft_.members) add_member(m);
    for (auto& [level, phase] : levels_) {
      if (phase.stmts.empty()) continue;
      if (!is_row_level(level)) phase.inner = inner_extents_;
      kernel_.phases.push_back(std::move(phase));
    }
    return finish();
  }

private:
  const Compute& compute_of(const Member& m) const {
    return std::get<Compute>(program_.operations[m.op].what);
  }

  KernelProgram finish() {
    for (Phase& phase : kernel_.phases)
      for (Stmt& s : phase.stmts) {
        Extents extents = kernel_.extents(phase);
        s.value = simplify(s.value, extents);
        if (s.mask) s.mask = simplify(s.mask, extents);
        s.address = simplify(s.address, extents);
      }
    split_loops(kernel_);
    merge_loops(kernel_, facts_);
    move_offsets(kernel_);
    return std::move(kernel_);
  }

  // --- axes

  /// Calls f(axis, variable) for each variable of a member that runs over an axis.
  template <class F> void each_variable(const Member& m, const F& f) const {
    for (size_t k = 0; k < m.axis_of_var.size(); ++k)
      if (m.axis_of_var[k] >= 0) f(m.axis_of_var[k], c_.var(static_cast<int>(k)));
    for (size_t k = 0; k < m.axis_of_rvar.size(); ++k)
      if (m.axis_of_rvar[k] >= 0) f(m.axis_of_rvar[k], c_.rvar(static_cast<int>(k)));
  }
  template <class F> void each_load(const F& f) const {
    for (const Member& m : draft_.members)
      visit(compute_of(m).loops.body, [&](Expr e) {
        if (e->op == Op::load) f(m, e, program_.at(e->buffer));
      });
  }
  /// At places that data decides: contiguous along an axis, single elements along those of the places.
  static bool gathers(Expr load) {
    return std::any_of(load->indices.begin(), load->indices.end(), has_indirect);
  }

  /// The votes of what is read at places that data decides. All together have less than one result: elements
  /// that a vector gathers from lines in the cache take less time than elements that it scatters over as many
  /// lines of memory. Where results that lie apart along the axis stay in a core's cache, they count as other
  /// reads do.
  std::vector<double> gathered_votes() const {
    std::vector<double> votes(draft_.axes.size(), 0);
    each_load([&](const Member& m, Expr e, const Buffer& b) {
      if (!gathers(e)) return;
      for (size_t d = 0; d < e->indices.size(); ++d)
        each_variable(m, [&](int axis, SymInt v) { vote_load(votes, axis, e->indices[d], b.strides[d], v); });
    });
    for (size_t a = 0; a < votes.size(); ++a)
      if (votes[a] > 1 && !is_near(static_cast<int>(a))) votes[a] = kGathered;
    return votes;
  }

  /// All results along an axis take a part of a core's cache.
  bool is_near(int axis) const {
    constexpr int64_t kBytes = 512 << 10;
    return std::all_of(draft_.members.begin(), draft_.members.end(), [&](const Member& m) {
      const Buffer& out = program_.at(compute_of(m).output);
      for (size_t k = 0; k < m.axis_of_var.size(); ++k) {
        if (m.axis_of_var[k] != axis) continue;
        const auto bytes = (out.strides[k] * draft_.axes[axis] * SymInt(size_of(out.dtype))).as_constant();
        if (!bytes || *bytes > kBytes) return false;
      }
      return true;
    });
  }

  /// Outer axes in the order of the results' strides (smallest last), inner axes in the order of the reads'
  /// strides, unless places are counted over them: these are what the model's order makes them.
  void order_axes() {
    size_t n = draft_.axes.size();
    std::vector<double> weight = gathered_votes(), read(n, 0);
    const double points = hint(draft_.axes);
    // Along the axis of gathered elements, which a vector reads at once, what does not depend on it is the
    // same for all: the places and factors of the elements do not speak for their own axes.
    const auto most = std::max_element(weight.begin(), weight.end());
    const int gathered = most != weight.end() && *most >= 1 && !is_short(draft_.axes[most - weight.begin()])
                             ? static_cast<int>(most - weight.begin())
                             : -1;
    for (const Member& m : draft_.members) {
      const Buffer& out = program_.at(compute_of(m).output);
      for (size_t k = 0; k < m.axis_of_var.size(); ++k)
        if (m.axis_of_var[k] >= 0) vote(weight, m.axis_of_var[k], out.strides[k], kStored);
    }
    each_load([&](const Member& m, Expr e, const Buffer& b) {
      if (gathers(e)) return;
      bool varies = gathered < 0;
      each_variable(m, [&](int axis, SymInt v) {
        for (SymInt index : e->indices) varies |= axis == gathered && depends_on(index, v.node());
      });
      const bool whole = !is_short(product(b.sizes));
      // What has few elements, as a scale of each channel, is in the cache whatever the order.
      const double votes = std::min(1.0, hint(b.sizes) / points);
      for (size_t d = 0; d < e->indices.size(); ++d)
        each_variable(m, [&](int axis, SymInt v) {
          if (varies) vote_load(weight, axis, e->indices[d], b.strides[d], v, votes);
          if (whole) vote_load(read, axis, e->indices[d], b.strides[d], v);
        });
    });
    std::vector<int> outer, inner;
    for (size_t a = 0; a < n; ++a) (draft_.inner[a] ? inner : outer).push_back(static_cast<int>(a));
    // A small stride weighs most: such an axis goes last. Ties keep the order of the model.
    auto by_weight = [&](int a, int b) { return weight[a] < weight[b]; };
    std::stable_sort(outer.begin(), outer.end(), by_weight);
    const bool counts = std::any_of(draft_.members.begin(), draft_.members.end(),
                                    [&](const Member& m) { return counts_places(compute_of(m).loops); });
    if (!counts) std::stable_sort(inner.begin(), inner.end(), by_weight);
    // Few channels fill no vector: what writes them side by side loops in the order in which it reads.
    if (inner.empty() && outer.size() > 1 && is_short(draft_.axes[outer.back()]) && read[outer.back()] < 1) {
      std::vector<int> as_read = outer;
      std::stable_sort(as_read.begin(), as_read.end(), [&](int a, int b) { return read[a] < read[b]; });
      if (read[as_read.back()] >= 1 && !is_short(draft_.axes[as_read.back()])) outer = std::move(as_read);
    }
    axis_var_.resize(n);
    for (size_t i = 0; i < outer.size(); ++i) {
      axis_var_[outer[i]] = c_.var(static_cast<int>(i));
      kernel_.outer.push_back(draft_.axes[outer[i]]);
    }
    for (size_t i = 0; i < inner.size(); ++i) {
      axis_var_[inner[i]] = c_.rvar(static_cast<int>(i));
      inner_extents_.push_back(draft_.axes[inner[i]]);
    }
    // Row-local buffers are addressed row-major over the inner axes.
    SymInt step = 1;
    inner_strides_.assign(n, SymInt(0));
    for (size_t i = inner.size(); i-- > 0;) {
      inner_strides_[inner[i]] = step;
      step = step * draft_.axes[inner[i]];
    }
    row_numel_ = step;
  }

  /// Fills no vector.
  static bool is_short(SymInt extent) {
    auto n = extent.as_constant();
    return n && *n < 8;
  }

  static void vote(std::vector<double>& weight, int axis, SymInt stride, double votes) {
    double s = static_cast<double>(std::max<int64_t>(1, size_hint(stride)));
    if (!stride.is(0)) weight[axis] += votes / s;
  }

  void vote_load(std::vector<double>& weight, int axis, SymInt index, SymInt stride, SymInt variable,
                 double votes = 1) const {
    if (axis < 0) return;
    auto affine = affine_in(index, variable.node());
    if (affine && !affine->coefficient.is(0)) vote(weight, axis, affine->coefficient * stride, votes);
  }
  /// Elements, at the size hints.
  static double hint(const SymInts& sizes) {
    double n = 1;
    for (SymInt s : sizes) n *= static_cast<double>(std::max<int64_t>(1, size_hint(s)));
    return n;
  }

  Substitution substitution_of(const Member& m) const {
    auto axis = [&](int a) { return a < 0 ? SymInt(0) : axis_var_[a]; };
    Substitution s;
    for (int a : m.axis_of_var) s.vars.push_back(axis(a));
    for (int a : m.axis_of_rvar) s.rvars.push_back(axis(a));
    return s;
  }

  bool is_full(const Member& m) const {
    for (int a : m.axis_of_var)
      if (a >= 0 && draft_.inner[a]) return true;
    return false;
  }

  // --- what outlives the group, what is read in another phase

  void find_needs() {
    std::vector<int> mine;
    for (const Member& m : draft_.members) mine.push_back(m.op);
    std::sort(mine.begin(), mine.end());
    for (const Member& m : draft_.members) {
      BufferId id = compute_of(m).output;
      BufferId owner = owner_of(program_, id);
      bool outside = deps_.is_output[owner] || owner != id;
      for (int r : deps_.readers[owner]) outside |= !std::binary_search(mine.begin(), mine.end(), r);
      made_[id].stored = outside;
    }
  }

  // --- members

  void add_member(const Member& m) {
    const Compute& compute = compute_of(m);
    const Loops& loops = compute.loops;
    Made& made = made_.at(compute.output);
    made.member = &m;
    made.reduction = loops.kind == LoopKind::reduction;
    made.full = !made.reduction && is_full(m);
    Substitution s = substitution_of(m);
    Expr body = ir::substitute(loops.body, s);
    const Expr mask = mask_of(m);
    if (mask) body = mask_loads(body, mask);
    made.level = level_of(body, made);
    Expr value = resolve_loads(body, made.level);
    DType compute_dtype = compute_type(loops.dtype);
    if (made.reduction) {
      const int number = accumulator(made.level, loops.reduce, value);
      made.value = as_stored(c_.accumulator(number, compute_dtype), loops.dtype);
      if (made.stored) store(compute.output, made.value, m, made.level + 1);
      return;
    }
    TBX_INTERNAL(value->dtype == compute_dtype);
    if (!made.full && !kernel_has_inner()) {
      made.value = as_stored(value, loops.dtype);
      if (made.stored) store(compute.output, value, m, made.level, mask);
      return;
    }
    if (!made.full) {
      Stmt let;
      let.kind = StmtKind::let;
      let.value = value;
      let.number = kernel_.num_locals++;
      levels_[made.level].stmts.push_back(let);
      Expr local = c_.local(let.number, value->dtype);
      made.value = as_stored(local, loops.dtype);
      if (made.stored) store(compute.output, local, m, made.level);
      return;
    }
    made.value = as_stored(value, loops.dtype);
    if (made.stored) store(compute.output, value, m, made.level);
  }

  /// The accumulator of this reduction, which a sum and a mean of the same values share.
  int accumulator(int level, ReduceOp op, Expr value) {
    std::vector<Stmt>& stmts = levels_[level].stmts;
    for (const Stmt& s : stmts)
      if (s.kind == StmtKind::reduce && s.reduce == op && s.value == value) return s.number;
    Stmt reduce;
    reduce.kind = StmtKind::reduce;
    reduce.value = value;
    reduce.reduce = op;
    reduce.number = kernel_.num_accumulators++;
    stmts.push_back(reduce);
    return reduce.number;
  }

  bool kernel_has_inner() const { return !inner_extents_.empty(); }

  /// The value a reader of memory would see: narrow floats are rounded by the store.
  Expr as_stored(Expr value, DType dtype) {
    return is_low_precision_float(dtype) ? c_.round_to(value, dtype, dtype != DType::f8e5m2) : value;
  }

  int level_of(Expr body, const Made& self) {
    bool inner = self.reduction || self.full;
    int level = inner ? 1 : 0;
    visit(body, [&](Expr n) {
      if (n->op != Op::load) return;
      auto it = made_.find(n->buffer);
      if (it == made_.end() || !it->second.member) return;
      const Made& made = it->second;
      int ready = made.level;
      if (made.reduction) {
        ready += inner ? 2 : 1;
      } else if (made.full) {
        if (!inner)
          ready += 1; // one value per row out of a full row: after the phase
        else if (!at_same_point(n, made))
          ready += 2;
      } else if (inner) {
        ready += 1;
      }
      level = std::max(level, ready);
    });
    return level;
  }

  bool at_same_point(Expr load, const Made& made) const {
    Substitution s = substitution_of(*made.member);
    for (size_t k = 0; k < load->indices.size(); ++k)
      if (made.member->axis_of_var[k] >= 0 && !(load->indices[k] == s.vars[k])) return false;
    return true;
  }

  /// Loads of the group's own results become values, other loads get kernel buffers and linear addresses.
  Expr resolve_loads(Expr body, int level) {
    return rewrite(body, [&](Expr n) -> Expr {
      if (n->op != Op::load) return n;
      auto it = made_.find(n->buffer);
      if (it == made_.end() || !it->second.member) return global_load(n);
      Made& made = it->second;
      Expr value;
      if (!made.full || (made.level == level && at_same_point(n, made))) {
        value = made.value;
      } else if (made.stored) {
        return global_load(n);
      } else {
        return row_local_load(n, made);
      }
      if (!n->mask()) return value;
      return c_.where(n->mask(), value, c_.constant_int(value->dtype, 0));
    });
  }

  Expr row_local_load(Expr n, Made& made) {
    const Buffer& b = program_.at(n->buffer);
    if (made.row_local < 0) {
      made.row_local = static_cast<int>(kernel_.buffers.size());
      kernel_.buffers.push_back({-1, b.dtype, Access::row_local, row_numel_});
      Stmt s;
      s.kind = StmtKind::store;
      s.value = made.value;
      s.buffer = made.row_local;
      for (size_t a = 0; a < draft_.axes.size(); ++a)
        if (draft_.inner[a]) s.address += inner_strides_[a] * axis_var_[a];
      levels_[made.level].stmts.push_back(s);
    }
    SymInt address = 0;
    for (size_t k = 0; k < n->indices.size(); ++k) {
      int axis = made.member->axis_of_var[k];
      if (axis >= 0 && draft_.inner[axis]) address += inner_strides_[axis] * n->indices[k];
    }
    return c_.load(made.row_local, n->dtype, {address}, n->mask());
  }

  Expr global_load(Expr n) {
    int b = kernel_buffer(n->buffer, Access::read);
    return c_.load(b, n->dtype, {address_of(n->buffer, n->indices)}, n->mask());
  }

  /// Where the member has points; nullptr: everywhere.
  Expr mask_of(const Member& m) const {
    if (m.short_axis < 0) return nullptr;
    return ir::binary(Op::less, c_.index(axis_var_[m.short_axis]), c_.index(m.end));
  }

  void store(BufferId id, Expr value, const Member& m, int level, Expr mask = nullptr) {
    Stmt s;
    s.kind = StmtKind::store;
    s.value = value;
    s.mask = mask;
    s.buffer = kernel_buffer(id, Access::write);
    s.address = address_of(id, substitution_of(m).vars);
    levels_[level].stmts.push_back(s);
  }

  SymInt address_of(BufferId id, const SymInts& indices) {
    SymInt address = 0;
    const Buffer* b = &program_.at(id);
    for (size_t k = 0; k < indices.size(); ++k) address += indices[k] * b->strides[k];
    for (; b->slice_of >= 0 || b->overwrites >= 0;) {
      const Buffer& parent = program_.at(b->slice_of >= 0 ? b->slice_of : b->overwrites);
      if (b->slice_of >= 0)
        for (size_t k = 0; k < b->slice_start.size(); ++k) address += b->slice_start[k] * parent.strides[k];
      b = &parent;
    }
    return address;
  }

  int kernel_buffer(BufferId id, Access access) {
    BufferId owner = owner_of(program_, id);
    auto [it, fresh] = buffer_index_.try_emplace(owner, static_cast<int>(kernel_.buffers.size()));
    if (fresh) {
      const Buffer& b = program_.at(owner);
      kernel_.buffers.push_back({owner, b.dtype, access, product(b.sizes)});
    } else if (kernel_.buffers[it->second].access != access) {
      kernel_.buffers[it->second].access = Access::read_write;
    }
    return it->second;
  }

  // --- nests with an order of their own

  Expr global_loads(Expr e) {
    return e ? rewrite(e, [&](Expr n) { return n->op == Op::load ? global_load(n) : n; }) : nullptr;
  }

  void build_scan(const Compute& compute) {
    const Loops& loops = compute.loops;
    ir::ScanLoops over = ir::loops_of_scan(c_, loops);
    kernel_.outer = over.outer;
    const ir::Extents extents{over.outer, {over.inner}};
    Substitution s{over.at, {}};
    Phase phase;
    phase.inner = {over.inner};
    Stmt st;
    st.kind = StmtKind::scan;
    st.value = global_loads(simplify(ir::substitute(loops.body, s), extents));
    st.reduce = loops.reduce;
    st.exclusive = loops.exclusive;
    st.number = kernel_.num_accumulators++;
    st.buffer = kernel_buffer(compute.output, Access::write);
    st.address = address_of(compute.output, s.vars);
    phase.stmts.push_back(st);
    kernel_.phases.push_back(std::move(phase));
  }

  /// Addresses carry indirect values whose expressions load: those loads need kernel buffers too.
  SymInt resolve_indirect(SymInt e) {
    std::unordered_map<const SymNode*, SymInt> map;
    visit(e, [&](const SymNode& node) {
      if (node.kind != SymKind::indirect) return;
      map[&node] = c_.indirect(global_loads(node.value), node.args[0], false, node.origin);
    });
    return map.empty() ? e : replace(e, map);
  }

  /// Variables that are an index by themselves: points that differ in one of them never meet, so that these
  /// run side by side. The order of the others is the model's.
  std::vector<bool> disjoint_variables(const Scatter& scatter) const {
    std::vector<bool> disjoint(scatter.ranges.size(), false);
    for (size_t k = 0; k < scatter.ranges.size(); ++k)
      for (SymInt index : scatter.indices) disjoint[k] = disjoint[k] || index == c_.var(static_cast<int>(k));
    return disjoint;
  }

  void build_scatter(const Scatter& scatter) {
    std::vector<bool> disjoint = disjoint_variables(scatter);
    const bool any = std::find(disjoint.begin(), disjoint.end(), true) != disjoint.end();
    if (!any) disjoint.assign(disjoint.size(), true);
    kernel_.sequential = !any;
    Phase phase;
    Substitution to;
    for (size_t k = 0; k < disjoint.size(); ++k) {
      SymInts& loops = disjoint[k] ? kernel_.outer : phase.inner;
      const int number = static_cast<int>(loops.size());
      to.vars.push_back(disjoint[k] ? c_.var(number) : c_.rvar(number));
      loops.push_back(scatter.ranges[k]);
    }
    auto moved = [&](Expr e) { return e ? global_loads(ir::substitute(e, to)) : nullptr; };
    Stmt s;
    s.kind = StmtKind::store;
    s.value = moved(scatter.value);
    s.mask = moved(scatter.mask);
    s.mode = scatter.mode;
    s.buffer = kernel_buffer(scatter.target, Access::read_write);
    SymInts indices;
    for (SymInt index : scatter.indices) indices.push_back(resolve_indirect(ir::substitute(index, to)));
    s.address = address_of(scatter.target, indices);
    phase.stmts.push_back(s);
    kernel_.phases.push_back(std::move(phase));
  }

  const Program& program_;
  const Dependencies& deps_;
  const SizeFacts& facts_;
  const Draft& draft_;
  Context& c_;
  KernelProgram kernel_;
  SymInts inner_extents_;
  SymInts axis_var_, inner_strides_;
  SymInt row_numel_;
  std::map<int, Phase> levels_;
  std::unordered_map<BufferId, Made> made_;
  std::unordered_map<BufferId, int> buffer_index_;
};

} // namespace

KernelProgram build_kernel(const Program& program, const Dependencies& deps, const SizeFacts& facts,
                           const Draft& draft) {
  return KernelBuilder(program, deps, facts, draft).build();
}

} // namespace tbx::fusion
