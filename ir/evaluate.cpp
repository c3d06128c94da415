#include "ir/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "ir/lane_ops.h"

namespace tbx::ir {
namespace {

/// An index expression over symbols, loop variables and indirect values; the block variable may be split off.
struct IndexCode {
  SymInt whole;
  bool affine = false; ///< whole = base + step * (block variable), both free of it
  SymInt base, step;
};

struct Slot {
  Expr node;
  int args[3] = {-1, -1, -1};
  IndexCode index;
};

struct PreparedStmt {
  const Stmt* stmt;
  int value = -1, mask = -1;
  IndexCode address;
  DType value_type = DType::undefined;
};

struct PreparedPhase {
  const Phase* phase;
  std::vector<Slot> slots; ///< operands before users
  std::unordered_map<Expr, int> slot_of;
  std::vector<PreparedStmt> stmts;
  const SymNode* block = nullptr; ///< the variable lanes run over
};

} // namespace

struct KernelEvaluator::Prepared {
  const KernelProgram* kernel;
  std::vector<PreparedPhase> phases;
  bool vertical = false; ///< no phase has inner loops: lanes run over the last outer variable
  std::vector<DType> accumulator_type;
};

namespace {

IndexCode index_code(SymInt e, const SymNode* block) {
  IndexCode code{e, false, 0, 0};
  if (!block) {
    code.affine = !has_indirect(e);
    code.base = e;
    return code;
  }
  if (has_indirect(e)) return code;
  if (auto a = affine_in(e, block)) {
    code.affine = true;
    code.base = a->rest;
    code.step = a->coefficient;
  }
  return code;
}

/// One run over a range of outer points.
class Runner {
public:
  Runner(const KernelEvaluator::Prepared* p, std::span<void* const> buffers,
         std::span<const int64_t> symbols);
  void run(int64_t begin, int64_t end);

private:
  void run_phase(const PreparedPhase& p, size_t number);
  void run_block(const PreparedPhase& p, size_t number, int n);
  void compute_slot(const PreparedPhase& p, size_t number, size_t s, int n);
  /// Lanes that are masked off get 0: their index may be out of range and is never used.
  void addresses(const PreparedPhase& p, size_t number, const IndexCode& code, int n,
                 const Lanes* mask = nullptr);
  int64_t value_of(SymInt e, const PreparedPhase& p, size_t number, int lane);
  int64_t indirect(const PreparedPhase& p, size_t number, const SymNode& node, int lane);
  void execute(const PreparedPhase& p, size_t number, const PreparedStmt& s, int n);
  void reduce(const PreparedStmt& s, const Lanes& v, int n);
  void store(const PreparedStmt& s, const PreparedPhase& p, size_t number, int n);
  void scan(const PreparedStmt& s, const PreparedPhase& p, size_t number, int n);
  void begin_accumulators(const PreparedPhase& p);
  void* memory(int buffer) const { return buffers_[buffer]; }

  const KernelEvaluator::Prepared& prepared_;
  const KernelProgram& kernel_;
  std::vector<void*> buffers_;
  std::span<const int64_t> symbols_;
  std::vector<std::vector<std::byte>> row_local_;
  std::vector<int64_t> outer_extent_, outer_, inner_extent_, inner_;
  std::vector<std::vector<Lanes>> lanes_; ///< per phase and slot
  struct Local {
    Lanes lanes;
    int count = 0;
  };
  std::vector<Local> locals_;
  struct Accumulator {
    Scalar value;
    double sum = 0;    ///< f32 sums are kept in double: at least as exact as several vector accumulators
    int64_t index = 0; ///< of the best, arg reductions
    bool any = false, is_arg = false;
    int64_t position = 0;
  };
  std::vector<Accumulator> accumulators_;
  int64_t address_[kLanes];
  int64_t block_start_ = 0;
};

bool is_arg(ReduceOp op) { return op >= ReduceOp::argmax; }

} // namespace

KernelEvaluator::KernelEvaluator(const KernelProgram& kernel) {
  auto p = std::make_unique<Prepared>();
  p->kernel = &kernel;
  p->accumulator_type.resize(kernel.num_accumulators, DType::undefined);
  p->vertical =
      std::all_of(kernel.phases.begin(), kernel.phases.end(), [](const Phase& x) { return x.inner.empty(); });
  for (const Phase& phase : kernel.phases) {
    PreparedPhase pp;
    pp.phase = &phase;
    if (!phase.inner.empty()) {
      pp.block = kernel.context->rvar(static_cast<int>(phase.inner.size()) - 1).node();
    } else if (p->vertical && !kernel.outer.empty()) {
      pp.block = kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
    }
    std::vector<Expr> roots;
    auto add_indirect_roots = [&](SymInt e) {
      visit(e, [&](const SymNode& n) {
        if (n.kind == SymKind::indirect) roots.push_back(n.value);
      });
    };
    for (const Stmt& s : phase.stmts) {
      add_indirect_roots(s.address);
      if (s.mask) roots.push_back(s.mask);
      roots.push_back(s.value);
    }
    visit(std::span<const Expr>(roots), [&](Expr e) {
      Slot slot{e, {-1, -1, -1}, {}};
      for (int i = 0; i < e->num_args; ++i) slot.args[i] = pp.slot_of.at(e->args[i]);
      if (e->op == Op::load || e->op == Op::index) slot.index = index_code(e->indices[0], pp.block);
      pp.slot_of[e] = static_cast<int>(pp.slots.size());
      pp.slots.push_back(std::move(slot));
    });
    for (const Stmt& s : phase.stmts) {
      PreparedStmt ps{&s, pp.slot_of.at(s.value), s.mask ? pp.slot_of.at(s.mask) : -1,
                      index_code(s.address, pp.block), s.value->dtype};
      if (s.kind == StmtKind::reduce || s.kind == StmtKind::scan)
        p->accumulator_type[s.number] = is_arg(s.reduce) ? DType::i64 : s.value->dtype;
      pp.stmts.push_back(ps);
    }
    p->phases.push_back(std::move(pp));
  }
  prepared_ = std::move(p);
}

KernelEvaluator::~KernelEvaluator() = default;

void KernelEvaluator::run(std::span<void* const> buffers, std::span<const int64_t> symbols, int64_t begin,
                          int64_t end) const {
  if (begin < end) Runner(prepared_.get(), buffers, symbols).run(begin, end);
}

void evaluate_kernel(const KernelProgram& kernel, std::span<void* const> buffers,
                     std::span<const int64_t> symbols, int64_t begin, int64_t end) {
  KernelEvaluator(kernel).run(buffers, symbols, begin, end);
}

namespace {

Runner::Runner(const KernelEvaluator::Prepared* p, std::span<void* const> buffers,
               std::span<const int64_t> symbols)
    : prepared_(*p), kernel_(*p->kernel), buffers_(buffers.begin(), buffers.end()), symbols_(symbols) {
  auto size = [&](SymInt e) {
    auto v = evaluate(e, symbols_);
    TBX_MODEL(v.has_value(), "the size {} cannot be evaluated", to_string(e));
    return *v;
  };
  for (size_t b = 0; b < kernel_.buffers.size(); ++b)
    if (kernel_.buffers[b].access == Access::row_local) {
      row_local_.emplace_back(
          static_cast<size_t>(size(kernel_.buffers[b].numel) * size_of(kernel_.buffers[b].dtype)));
      buffers_[b] = row_local_.back().data();
    }
  for (SymInt e : kernel_.outer) outer_extent_.push_back(size(e));
  outer_.resize(outer_extent_.size());
  locals_.resize(kernel_.num_locals);
  accumulators_.resize(kernel_.num_accumulators);
  for (const PreparedPhase& phase : prepared_.phases) lanes_.emplace_back(phase.slots.size());
}

void Runner::run(int64_t begin, int64_t end) {
  int64_t last = outer_extent_.empty() ? 1 : outer_extent_.back();
  for (int64_t point = begin; point < end;) {
    int64_t rest = point;
    for (size_t k = outer_.size(); k-- > 0;) {
      outer_[k] = outer_extent_[k] ? rest % outer_extent_[k] : 0;
      rest = outer_extent_[k] ? rest / outer_extent_[k] : 0;
    }
    if (prepared_.vertical) {
      int64_t here = outer_.empty() ? 0 : outer_.back();
      int n = static_cast<int>(std::min<int64_t>({kLanes, end - point, last - here}));
      block_start_ = here;
      for (size_t i = 0; i < prepared_.phases.size(); ++i) run_block(prepared_.phases[i], i, n);
      point += n;
    } else {
      for (size_t i = 0; i < prepared_.phases.size(); ++i) run_phase(prepared_.phases[i], i);
      ++point;
    }
  }
}

void Runner::run_phase(const PreparedPhase& p, size_t number) {
  begin_accumulators(p);
  inner_extent_.clear();
  for (SymInt e : p.phase->inner) inner_extent_.push_back(evaluate(e, symbols_).value_or(0));
  inner_.assign(inner_extent_.size(), 0);
  if (inner_extent_.empty()) {
    block_start_ = 0;
    run_block(p, number, 1);
    return;
  }
  for (int64_t e : inner_extent_)
    if (e <= 0) return;
  for (;;) {
    for (block_start_ = 0; block_start_ < inner_extent_.back(); block_start_ += kLanes) {
      inner_.back() = block_start_;
      run_block(p, number, static_cast<int>(std::min<int64_t>(kLanes, inner_extent_.back() - block_start_)));
    }
    size_t k = inner_.size() - 1;
    while (k-- > 0) {
      if (++inner_[k] < inner_extent_[k]) break;
      inner_[k] = 0;
    }
    if (k == static_cast<size_t>(-1)) break;
  }
}

Scalar identity_of(ReduceOp op, DType type) {
  double inf = std::numeric_limits<double>::infinity();
  bool real = type == DType::f32 || type == DType::f64;
  switch (op) {
  case ReduceOp::sum:
  case ReduceOp::any: return {0, 0};
  case ReduceOp::prod:
  case ReduceOp::all: return {1, 1};
  case ReduceOp::max:
    return real ? Scalar{0, -inf}
                : Scalar{is_signed(type) && type != DType::i64 ? -(int64_t{1} << (bits_of(type) - 1))
                         : type == DType::i64                  ? std::numeric_limits<int64_t>::min()
                                                               : 0,
                         0};
  case ReduceOp::min:
    return real ? Scalar{0, inf}
                : Scalar{type == DType::i64   ? std::numeric_limits<int64_t>::max()
                         : type == DType::u64 ? -1
                         : type == DType::boolean
                             ? 1
                             : (int64_t{1} << (bits_of(type) - (is_signed(type) ? 1 : 0))) - 1,
                         0};
  default: return {0, 0};
  }
}

void Runner::begin_accumulators(const PreparedPhase& p) {
  for (const PreparedStmt& s : p.stmts)
    if (s.stmt->kind == StmtKind::reduce || s.stmt->kind == StmtKind::scan) {
      accumulators_[s.stmt->number] = {};
      accumulators_[s.stmt->number].value = identity_of(s.stmt->reduce, s.value_type);
      accumulators_[s.stmt->number].is_arg = is_arg(s.stmt->reduce);
    }
}

void Runner::run_block(const PreparedPhase& p, size_t number, int n) {
  if (prepared_.vertical) begin_accumulators(p);
  // Statements run in order, and a statement may read what an earlier one of the phase wrote at the same
  // point only through values, so slots can be computed lazily in front of each statement.
  size_t done = 0;
  for (const PreparedStmt& s : p.stmts) {
    size_t need = static_cast<size_t>(std::max(s.value, s.mask)) + 1;
    visit(s.stmt->address, [&](const SymNode& node) {
      if (node.kind == SymKind::indirect)
        need = std::max(need, static_cast<size_t>(p.slot_of.at(node.value)) + 1);
    });
    for (; done < need; ++done) compute_slot(p, number, done, n);
    execute(p, number, s, n);
  }
}

void Runner::compute_slot(const PreparedPhase& p, size_t number, size_t s, int n) {
  const Slot& slot = p.slots[s];
  const ExprNode& e = *slot.node;
  Lanes& out = lanes_[number][s];
  LaneType type = lane_type(e.dtype);
  switch (e.op) {
  case Op::constant:
    fill_lanes(out, type, n, type == LaneType::integer ? Scalar{e.as_int(), 0} : Scalar{0, e.as_double()});
    return;
  case Op::index:
    addresses(p, number, slot.index, n);
    std::copy_n(address_, n, out.i);
    return;
  case Op::load: {
    const Lanes* mask = e.mask() ? &lanes_[number][slot.args[0]] : nullptr;
    addresses(p, number, slot.index, n, mask);
    const void* base = memory(e.buffer);
    DType storage = kernel_.buffers[e.buffer].dtype;
    if (storage == DType::f32 && !mask) {
      for (int l = 0; l < n; ++l) out.f[l] = static_cast<const float*>(base)[address_[l]];
      return;
    }
    for (int l = 0; l < n; ++l)
      set_lane(out, type, l, mask && !mask->i[l] ? Scalar{} : load_element(storage, base, address_[l]));
    return;
  }
  case Op::accumulator: {
    const Accumulator& acc = accumulators_[e.number];
    fill_lanes(out, type, n, acc.is_arg ? Scalar{acc.index, 0} : acc.value);
    return;
  }
  case Op::local: {
    const Local& local = locals_[e.number];
    if (local.count == n && n > 1) {
      out = local.lanes;
    } else {
      fill_lanes(out, type, n, get_lane(local.lanes, type, 0));
    }
    return;
  }
  default: {
    const Lanes* args[3] = {};
    for (int i = 0; i < e.num_args; ++i) args[i] = &lanes_[number][slot.args[i]];
    apply_lanes(e, args, out, n);
  }
  }
}

int64_t Runner::indirect(const PreparedPhase& p, size_t number, const SymNode& node, int lane) {
  int64_t v = lanes_[number][p.slot_of.at(node.value)].i[lane];
  int64_t extent = value_of(node.args[0], p, number, lane);
  if (v < 0 || v >= extent) throw_model_error("index {} is outside an axis of size {}", v, extent);
  return v;
}

int64_t Runner::value_of(SymInt e, const PreparedPhase& p, size_t number, int lane) {
  // Lanes move the block variable; everything else stands.
  bool inner = !p.phase->inner.empty();
  std::vector<int64_t>& moving = inner ? inner_ : outer_;
  int64_t saved = moving.empty() ? 0 : moving.back();
  if (!moving.empty() && p.block) moving.back() = block_start_ + lane;
  auto v =
      evaluate(e, symbols_, outer_, inner_, [&](const SymNode& n) { return indirect(p, number, n, lane); });
  if (!moving.empty()) moving.back() = saved;
  TBX_MODEL(v.has_value(), "the index {} cannot be evaluated", to_string(e));
  return *v;
}

void Runner::addresses(const PreparedPhase& p, size_t number, const IndexCode& code, int n,
                       const Lanes* mask) {
  if (code.affine) {
    int64_t base = value_of(code.base, p, number, 0),
            step = code.step.is(0) ? 0 : value_of(code.step, p, number, 0);
    int64_t first = p.block ? base + step * block_start_ : base;
    for (int l = 0; l < n; ++l) address_[l] = first + step * l;
    return;
  }
  int64_t result[kLanes];
  for (int l = 0; l < n; ++l) result[l] = mask && !mask->i[l] ? 0 : value_of(code.whole, p, number, l);
  std::copy_n(result, n, address_);
}

void Runner::execute(const PreparedPhase& p, size_t number, const PreparedStmt& s, int n) {
  switch (s.stmt->kind) {
  case StmtKind::store: return store(s, p, number, n);
  case StmtKind::reduce: return reduce(s, lanes_[number][s.value], n);
  case StmtKind::scan: return scan(s, p, number, n);
  case StmtKind::let:
    locals_[s.stmt->number].lanes = lanes_[number][s.value];
    locals_[s.stmt->number].count = n;
    return;
  }
}

Scalar combine(ReduceOp op, DType type, Scalar a, Scalar b) {
  switch (op) {
  case ReduceOp::sum: return apply_binary(Op::add, type, a, b);
  case ReduceOp::prod: return apply_binary(Op::mul, type, a, b);
  case ReduceOp::max: return apply_binary(Op::max, type, a, b);
  case ReduceOp::min: return apply_binary(Op::min, type, a, b);
  case ReduceOp::any: return {a.i || b.i, 0};
  case ReduceOp::all: return {a.i && b.i, 0};
  default: return a;
  }
}

void Runner::reduce(const PreparedStmt& s, const Lanes& v, int n) {
  Accumulator& acc = accumulators_[s.stmt->number];
  LaneType type = lane_type(s.value_type);
  ReduceOp op = s.stmt->reduce;
  if (op == ReduceOp::sum && type == LaneType::f32) {
    for (int l = 0; l < n; ++l) acc.sum += static_cast<double>(v.f[l]);
    acc.value.f = static_cast<float>(acc.sum);
    return;
  }
  if (!is_arg(op)) {
    for (int l = 0; l < n; ++l) acc.value = combine(op, s.value_type, acc.value, get_lane(v, type, l));
    return;
  }
  bool want_max = op == ReduceOp::argmax || op == ReduceOp::argmax_last;
  bool last = op == ReduceOp::argmax_last || op == ReduceOp::argmin_last;
  for (int l = 0; l < n; ++l, ++acc.position) {
    Scalar x = get_lane(v, type, l), best = acc.value;
    bool x_nan = type != LaneType::integer && std::isnan(x.f),
         best_nan = acc.any && type != LaneType::integer && std::isnan(best.f);
    bool better;
    if (!acc.any) {
      better = true;
    } else if (x_nan || best_nan) {
      better = x_nan && (!best_nan || last);
    } else {
      Op strict = want_max ? Op::greater : Op::less, loose = want_max ? Op::greater_equal : Op::less_equal;
      better = apply_binary(last ? loose : strict, s.value_type, x, best).i != 0;
    }
    if (better) {
      acc.value = x;
      acc.index = acc.position;
      acc.any = true;
    }
  }
}

void Runner::store(const PreparedStmt& s, const PreparedPhase& p, size_t number, int n) {
  const Lanes& v = lanes_[number][s.value];
  const Lanes* mask = s.mask >= 0 ? &lanes_[number][s.mask] : nullptr;
  void* base = memory(s.stmt->buffer);
  DType storage = kernel_.buffers[s.stmt->buffer].dtype;
  LaneType type = lane_type(s.value_type);
  addresses(p, number, s.address, n, mask);
  if (storage == DType::f32 && !mask && s.stmt->mode == StoreMode::set) {
    for (int l = 0; l < n; ++l) static_cast<float*>(base)[address_[l]] = v.f[l];
    return;
  }
  for (int l = 0; l < n; ++l) {
    if (mask && !mask->i[l]) continue;
    Scalar x = get_lane(v, type, l);
    if (s.stmt->mode != StoreMode::set) {
      Scalar old = load_element(storage, base, address_[l]);
      Op op = s.stmt->mode == StoreMode::add   ? Op::add
              : s.stmt->mode == StoreMode::mul ? Op::mul
              : s.stmt->mode == StoreMode::max ? Op::max
                                               : Op::min;
      if (s.value_type == DType::boolean)
        op = op == Op::add || op == Op::max ? Op::logical_or : Op::logical_and;
      x = apply_binary(op, s.value_type, old, x);
    }
    store_element(storage, base, address_[l], x);
  }
}

void Runner::scan(const PreparedStmt& s, const PreparedPhase& p, size_t number, int n) {
  Accumulator& acc = accumulators_[s.stmt->number];
  const Lanes& v = lanes_[number][s.value];
  LaneType type = lane_type(s.value_type);
  void* base = memory(s.stmt->buffer);
  DType storage = kernel_.buffers[s.stmt->buffer].dtype;
  addresses(p, number, s.address, n);
  for (int l = 0; l < n; ++l) {
    if (s.stmt->exclusive) store_element(storage, base, address_[l], acc.value);
    acc.value = combine(s.stmt->reduce, s.value_type, acc.value, get_lane(v, type, l));
    if (!s.stmt->exclusive) store_element(storage, base, address_[l], acc.value);
  }
}

} // namespace

} // namespace tbx::ir
