#include "lowering/replay.h"

#include "base/error.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {
namespace {
constexpr int kFirstLoad = 1 << 20; ///< locals from here on stand for loads
}

Replay::Replay(ir::Program& to, const ir::Program& from, std::span<const TensorBox> inputs)
    : to_(to), from_(from), producers_(from.buffers.size(), -1) {
  TBX_INTERNAL(inputs.size() == from.inputs.size() && to.context == from.context);
  for (size_t i = 0; i < inputs.size(); ++i) boxes_[from.inputs[i].buffer] = inputs[i];
  for (size_t i = 0; i < from.operations.size(); ++i) {
    const auto& what = from.operations[i].what;
    if (const auto* compute = std::get_if<ir::Compute>(&what))
      producers_[compute->output] = static_cast<int>(i);
    if (const auto* scatter = std::get_if<ir::Scatter>(&what))
      producers_[scatter->target] = static_cast<int>(i);
    if (const auto* call = std::get_if<ir::ExternCall>(&what))
      for (ir::BufferId id : call->outputs) producers_[id] = static_cast<int>(i);
  }
  for (const ir::Operation& op : from.operations) // sizes may be what it finds, whoever reads its results
    if (const auto* call = std::get_if<ir::ExternCall>(&op.what); call && !call->output_symbols.empty())
      run(*call);
}

int Replay::producer(ir::BufferId id) const { return producers_[id]; }

std::vector<ir::BufferId> Replay::parts(ir::BufferId whole) const {
  std::vector<ir::BufferId> found;
  for (const ir::Buffer& b : from_.buffers)
    if (b.slice_of == whole) found.push_back(b.id);
  return found;
}

const TensorBox& Replay::box(ir::BufferId id) {
  auto it = boxes_.find(id);
  if (it == boxes_.end()) it = boxes_.emplace(id, make(id)).first;
  return it->second;
}

/// Loads of the two programs look alike, and folding can bring forth one of either: those of `from` become
/// leaves of another kind before any of `to` comes in.
Expr Replay::operator()(Expr e, std::span<const TensorBox> locals) {
  ir::Context& c = *to_.context;
  Expr named = ir::rewrite(e, [&](Expr n) {
    if (n->op != Op::load) return n;
    auto [it, fresh] = numbers_.try_emplace(n, static_cast<int>(loads_.size()));
    if (fresh) loads_.push_back(n);
    return c.local(kFirstLoad + it->second, n->dtype);
  });
  return ir::rewrite(named, [&](Expr n) {
    if (n->op != Op::local) return n;
    if (n->number >= kFirstLoad) return load(loads_[static_cast<size_t>(n->number - kFirstLoad)], locals);
    const TensorBox& box = locals[static_cast<size_t>(n->number)];
    return box.load(to_, loop_vars(c, box.rank()));
  });
}

/// A load of `from`, whose operands are named already.
Expr Replay::load(Expr n, std::span<const TensorBox> locals) {
  SymInts at;
  for (SymInt index : n->indices) at.push_back(ir::has_indirect(index) ? (*this)(index, locals) : index);
  Expr value = box(n->buffer).load(to_, at);
  if (!n->mask()) return value;
  Expr mask = (*this)(n->mask(), locals), masked = ir::mask_loads(value, mask);
  return value->op == Op::load ? masked : ir::where(mask, masked, number(value, 0));
}

SymInt Replay::operator()(SymInt index, std::span<const TensorBox> locals) {
  Expr e = (*this)(to_.context->index(index), locals);
  return e->op == Op::constant ? SymInt(e->as_int()) : e->indices[0];
}

TensorBox Replay::make(ir::BufferId id) {
  const ir::Buffer& b = from_.at(id);
  if (b.kind == ir::BufferKind::constant)
    return ir::make_buffer_box(to_, to_.add_constant(b.constant, b.name));
  if (producers_[id] < 0) return make_whole(id);
  const auto& what = from_.operations[static_cast<size_t>(producers_[id])].what;
  if (const auto* call = std::get_if<ir::ExternCall>(&what)) {
    run(*call);
    return boxes_.at(id);
  }
  if (const auto* scatter = std::get_if<ir::Scatter>(&what)) return make(*scatter);
  TensorBox box = make(std::get<ir::Compute>(what));
  const bool is_output = std::any_of(from_.outputs.begin(), from_.outputs.end(),
                                     [&](const ir::ProgramOutput& o) { return o.buffer == id; });
  // The lowering had its reasons to put it into memory.
  if (!is_output && b.slice_of < 0) box.storage()->realize(to_, "as where it was computed first");
  return box;
}

void Replay::run(const ir::ExternCall& original) {
  ir::ExternCall call = original;
  for (ir::ExternOperand& in : call.inputs) {
    if (in.buffer < 0) continue;
    const SymInts& strides = from_.at(in.buffer).strides;
    const TensorBox& x = box(in.buffer);
    if (strides.empty()) {
      in.buffer = ir::realize_whole(to_, x, "read by a kernel");
      continue;
    }
    // Addresses count where dimensions were regrouped: memory of that layout.
    TensorBox copy =
        ir::make_pointwise(to_, x.dtype(), x.sizes(), x.load(to_, loop_vars(*to_.context, x.rank())));
    in.buffer = copy.storage()->realize(to_, "read by a kernel");
    to_.at(in.buffer).strides = strides;
  }
  for (ir::BufferId& out : call.outputs) {
    const ir::Buffer& b = from_.at(out);
    const ir::BufferId id = to_.new_buffer(b.name, b.dtype, b.sizes);
    boxes_[out] = ir::make_buffer_box(to_, id);
    out = id;
  }
  to_.operations.push_back({std::move(call), {}, "as where it was computed first"});
}

TensorBox Replay::make(const ir::Compute& compute) {
  const ir::Loops& l = compute.loops;
  Expr body = (*this)(l.body);
  switch (l.kind) {
  case ir::LoopKind::pointwise: return ir::make_pointwise(to_, l.dtype, l.ranges, body);
  case ir::LoopKind::reduction:
    return ir::make_reduction(to_, l.reduce, l.dtype, l.ranges, l.reduction_ranges, body);
  default: return ir::make_scan(to_, l.reduce, l.dtype, l.ranges, l.scan_axis, l.exclusive, l.reverse, body);
  }
}

TensorBox Replay::make(const ir::Scatter& scatter) {
  ir::Scatter copy = scatter;
  for (SymInt& index : copy.indices) index = (*this)(index);
  copy.value = (*this)(copy.value);
  if (copy.mask) copy.mask = (*this)(copy.mask);
  return scatter_onto(to_, box(from_.at(scatter.target).overwrites), std::move(copy));
}

/// Of a buffer that is written in parts.
TensorBox Replay::make_whole(ir::BufferId id) {
  const ir::Buffer& b = from_.at(id);
  ir::BufferId whole = to_.new_buffer(b.name, b.dtype, b.sizes);
  for (ir::BufferId part : parts(id)) {
    const TensorBox& x = box(part);
    ir::BufferId slice = to_.new_buffer("", x.dtype(), x.sizes());
    to_.at(slice).slice_of = whole;
    to_.at(slice).slice_start = from_.at(part).slice_start;
    ir::Loops loops;
    loops.ranges = x.sizes();
    loops.dtype = x.dtype();
    loops.body = x.load(to_, loop_vars(*to_.context, x.rank()));
    to_.operations.push_back({ir::Compute{std::move(loops), slice}, {}, "part of a concatenation"});
  }
  return ir::make_buffer_box(to_, whole);
}

TensorBox scatter_onto(ir::Program& p, const TensorBox& base, ir::Scatter scatter) {
  TensorBox copy =
      ir::make_pointwise(p, base.dtype(), base.sizes(), base.load(p, loop_vars(*p.context, base.rank())));
  ir::BufferId memory = copy.storage()->realize(p, "base of a scatter");
  scatter.target = p.new_buffer("", base.dtype(), base.sizes());
  p.at(scatter.target).overwrites = memory;
  TensorBox result = ir::make_buffer_box(p, scatter.target);
  p.operations.push_back({std::move(scatter), {}, "scatter"});
  return result;
}

} // namespace tbx::lowering
