#include "ir/evaluate.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "ir/lane_runner.h"

namespace tbx::ir {
namespace {

/// Row-local buffers exist once per lane when vertical; beyond this many bytes they would leave the caches.
constexpr int64_t kMaxRowLocalBytes = 1 << 20;

bool has_inner_loops(const KernelProgram& kernel) {
  return std::any_of(kernel.phases.begin(), kernel.phases.end(),
                     [](const Phase& p) { return !p.inner.empty(); });
}

} // namespace

struct KernelEvaluator::Prepared {
  explicit Prepared(const KernelProgram& kernel) : vertical(kernel, true) {
    if (has_inner_loops(kernel)) horizontal = std::make_unique<LaneProgram>(kernel, false);
  }

  /// The lay-out of lanes that fills blocks better.
  const LaneProgram& choose(std::span<const int64_t> symbols) const {
    const KernelProgram& kernel = vertical.kernel;
    if (!horizontal) return vertical;
    if (kernel.sequential || kernel.outer.empty()) return *horizontal;
    auto size = [&](SymInt e) { return std::min<int64_t>(evaluate(e, symbols).value_or(1), kLanes); };
    int64_t inner = kLanes, row_bytes = 0;
    for (const Phase& phase : kernel.phases)
      if (!phase.inner.empty()) inner = std::min(inner, size(phase.inner.back()));
    for (const KernelBuffer& b : kernel.buffers)
      if (b.access == Access::row_local)
        row_bytes +=
            std::min<int64_t>(evaluate(b.numel, symbols).value_or(0), kMaxRowLocalBytes) * size_of(b.dtype);
    bool fits = row_bytes * kLanes <= kMaxRowLocalBytes;
    return fits && size(kernel.outer.back()) > inner ? vertical : *horizontal;
  }

  LaneProgram vertical;
  std::unique_ptr<LaneProgram> horizontal;
};

KernelEvaluator::KernelEvaluator(const KernelProgram& kernel)
    : prepared_(std::make_unique<const Prepared>(kernel)) {}
KernelEvaluator::~KernelEvaluator() = default;

void KernelEvaluator::run(std::span<void* const> buffers, std::span<const int64_t> symbols, int64_t begin,
                          int64_t end) const {
  if (begin < end) LaneRunner(prepared_->choose(symbols), buffers, symbols).run(begin, end);
}

void evaluate_kernel(const KernelProgram& kernel, std::span<void* const> buffers,
                     std::span<const int64_t> symbols, int64_t begin, int64_t end) {
  // Preparing makes index expressions in the kernel's context, which is not thread-safe.
  static std::mutex mutex;
  std::unique_lock lock(mutex);
  KernelEvaluator evaluator(kernel);
  lock.unlock();
  evaluator.run(buffers, symbols, begin, end);
}

namespace {

/// A loop nest as a kernel over row-major buffers.
class NestKernel {
public:
  NestKernel(const Loops& loops, const std::function<const Tensor&(BufferId)>& buffer)
      : loops_(loops), buffer_(buffer) {
    // The context belongs to the caller.
    kernel_.context = std::shared_ptr<Context>(std::shared_ptr<void>(), loops.body->context);
    kernel_.buffers.push_back({0, loops.dtype, Access::write, product(loops.ranges)});
    data_.push_back(nullptr);
    switch (loops.kind) {
    case LoopKind::pointwise: make_pointwise(); break;
    case LoopKind::reduction: make_reduction(); break;
    case LoopKind::scan: make_scan(); break;
    }
  }

  Tensor run(std::span<const int64_t> symbols) {
    std::vector<int64_t> dims;
    auto size = [&](SymInt e) {
      auto v = evaluate(e, symbols);
      TBX_MODEL(v.has_value() && *v >= 0, "the size {} cannot be evaluated", to_string(e));
      return *v;
    };
    for (SymInt e : loops_.ranges) dims.push_back(size(e));
    Tensor out = Tensor::make(loops_.dtype, dims);
    data_[0] = out.mutable_data();
    int64_t points = out.numel() == 0 ? 0 : 1;
    for (SymInt e : kernel_.outer) points *= points ? size(e) : 0;
    evaluate_kernel(kernel_, data_, symbols, 0, points);
    return out;
  }

private:
  Context& c() { return *kernel_.context; }

  static SymInt row_major(const SymInts& indices, std::span<const SymInt> sizes) {
    SymInts strides = contiguous_strides(sizes);
    SymInt at = 0;
    for (size_t k = 0; k < indices.size(); ++k) at += indices[k] * strides[k];
    return at;
  }

  SymInts variables() {
    SymInts v;
    for (size_t k = 0; k < loops_.ranges.size(); ++k) v.push_back(c().var(static_cast<int>(k)));
    return v;
  }

  int add_buffer(BufferId id) {
    for (size_t b = 1; b < kernel_.buffers.size(); ++b)
      if (kernel_.buffers[b].id == id) return static_cast<int>(b);
    const Tensor& t = buffer_(id);
    kernel_.buffers.push_back({id, t.dtype, Access::read, t.numel()});
    data_.push_back(const_cast<std::byte*>(t.data));
    return static_cast<int>(kernel_.buffers.size()) - 1;
  }

  /// Loads by linear address.
  Expr linear(Expr e) {
    return rewrite(e, [&](Expr n) {
      if (n->op != Op::load) return n;
      const Tensor& t = buffer_(n->buffer);
      SymInts sizes(t.dims.begin(), t.dims.end());
      return c().load(add_buffer(n->buffer), n->dtype, {row_major(n->indices, sizes)}, n->mask());
    });
  }

  Stmt statement(StmtKind kind, Expr value, SymInt address) {
    Stmt s;
    s.kind = kind;
    s.value = value;
    s.buffer = kind == StmtKind::reduce ? -1 : 0;
    s.address = address;
    s.reduce = loops_.reduce;
    s.exclusive = loops_.exclusive;
    s.number = kind == StmtKind::store ? -1 : 0;
    return s;
  }

  void make_pointwise() {
    kernel_.outer = loops_.ranges;
    Stmt store = statement(StmtKind::store, linear(loops_.body), row_major(variables(), loops_.ranges));
    kernel_.phases.push_back({{}, {store}});
  }

  void make_reduction() {
    kernel_.outer = loops_.ranges;
    kernel_.num_accumulators = 1;
    Stmt reduce = statement(StmtKind::reduce, linear(loops_.body), 0);
    bool is_arg = loops_.reduce >= ReduceOp::argmax;
    Expr result =
        c().cast(c().accumulator(0, is_arg ? DType::i64 : reduce.value->dtype), compute_type(loops_.dtype));
    kernel_.phases.push_back({loops_.reduction_ranges, {reduce}});
    Stmt store = statement(StmtKind::store, result, row_major(variables(), loops_.ranges));
    kernel_.phases.push_back({{}, {store}});
  }

  void make_scan() {
    // The scanned axis becomes the inner loop.
    kernel_.num_accumulators = 1;
    SymInts at;
    for (size_t k = 0; k < loops_.ranges.size(); ++k) {
      SymInt n = loops_.ranges[k], i = c().rvar(0);
      bool along = static_cast<int>(k) == loops_.scan_axis;
      at.push_back(!along ? c().var(static_cast<int>(kernel_.outer.size())) : loops_.reverse ? n - 1 - i : i);
      if (!along) kernel_.outer.push_back(n);
    }
    Expr value = linear(substitute(loops_.body, {at, {}}));
    Stmt scan = statement(StmtKind::scan, value, row_major(at, loops_.ranges));
    kernel_.phases.push_back({{loops_.ranges[static_cast<size_t>(loops_.scan_axis)]}, {scan}});
  }

  const Loops& loops_;
  const std::function<const Tensor&(BufferId)>& buffer_;
  KernelProgram kernel_;
  std::vector<void*> data_;
};

} // namespace

Tensor evaluate_loops(const Loops& loops, const std::function<const Tensor&(BufferId)>& buffer,
                      std::span<const int64_t> symbols) {
  return NestKernel(loops, buffer).run(symbols);
}

} // namespace tbx::ir
