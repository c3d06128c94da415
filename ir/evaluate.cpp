#include "ir/evaluate.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "ir/lane_runner.h"
#include "ir/nest_kernel.h"

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
    add_nest(kernel_, loops,
             {[this](Expr e) { return linear(e); }, [] { return 0; },
              [this](const SymInts& at) { return row_major(at, loops_.ranges); }});
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
