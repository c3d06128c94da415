// Sizes that steps find out while a run goes on, such as how many boxes are left. What has them waits for its
// place until then, and gets it where the arena is free.
#include "runtime/session_impl.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/memory.h"
#include "runtime/run_checks.h"

namespace tbx::runtime {

/// Bytes of the arena: what earlier runs have found has room, so that it needs no block of its own.
int64_t Session::Impl::begin_finding(RunContext& ctx, std::shared_ptr<const ShapePlan> known) const {
  const int64_t bytes = std::max({known->arena_bytes, ctx.wanted, ctx.arena.size()});
  const bool same = ctx.known == known && ctx.blocks.ends().front() == bytes;
  if (ctx.known != known) ctx.shapes = *known;
  forget_found(facts, *known, ctx.shapes, same);
  ctx.known = std::move(known);
  ctx.made.assign(plan->buffers.size(), {});
  ctx.made_bytes = 0;
  return bytes;
}

/// Places and outputs for what has the sizes that step `s` has found.
void Session::Impl::take_found(size_t s, RunContext& ctx) const {
  const auto& call = std::get<ExternStep>(plan->steps[s].what);
  ShapePlan& shapes = ctx.shapes;
  if (!call.bound_symbols.empty()) run_checks(*plan, ctx.symbols, call.bound_symbols);
  const int64_t work = shapes.device_bytes - shapes.device_work;
  extend_shape_plan(*bound, shapes, facts,
                    {s, ctx.symbols, ctx.symbols_before, ctx.blocks.ends(), ctx.device_blocks.ends(),
                     options.max_memory > 0});
  ctx.counted_bytes = check_memory(shapes, ctx.run_outputs, ctx.made_bytes);
  if (const int64_t more = shapes.arena_bytes - ctx.blocks.bytes(); more > 0)
    ctx.blocks.add(pool.get(more), shapes.arena_bytes);
  ctx.wanted = std::max(ctx.wanted, shapes.arena_bytes);
  if (ctx.device) {
    if (const int64_t more = shapes.device_work - ctx.device_blocks.bytes(); more > 0)
      ctx.device_blocks.add(ctx.device->pool().get(static_cast<size_t>(more)), shapes.device_work);
    if (const int64_t needed = shapes.device_bytes - shapes.device_work; needed > work) {
      ctx.device_work_owner = ctx.device->pool().get(static_cast<size_t>(needed));
      ctx.device_work = ctx.device_work_owner.get();
    }
  }
  for (int b : facts.found[s].buffers) {
    const BufferPlan& p = plan->buffers[b];
    const BufferShape& shape = shapes.buffers[b];
    if (facts.made[b]) {
      TBX_MODEL(shape.bytes <= ctx.made[b].bytes, "a call makes other results: the plan is damaged");
      if (p.storage == StorageKind::output) hand_over(b, ctx);
    } else if (p.storage == StorageKind::output) {
      place_found_output(p.index, ctx);
    } else if (shape.offset >= 0) {
      ctx.pointers[b] = (p.device == DeviceKind::cpu ? ctx.blocks : ctx.device_blocks).at(shape.offset);
    }
  }
  const int64_t bytes = shapes.arena_bytes + shapes.device_bytes + ctx.made_bytes;
  int64_t most = most_found;
  while (most < bytes && !most_found.compare_exchange_weak(most, bytes)) continue;
}

void Session::Impl::place_found_output(int output, RunContext& ctx) const {
  const SignatureEntry& entry = plan->outputs[output];
  const BufferShape& shape = ctx.shapes.buffers[entry.buffer];
  RunTensor& out = ctx.run_outputs[output];
  if (!out.data) ctx.made_bytes += shape.bytes;
  place_output(out, entry, shape, ctx);
  if (!ctx.device) return;
  const auto bytes = static_cast<size_t>(shape.bytes);
  EdgeUse::How how = way_of(bound->on_device->edges.outputs[output], out.on_device, out.data, bytes);
  if (how == EdgeUse::How::direct) how = EdgeUse::How::copied; // the steps before have a place already
  ctx.edges_out[output] = {how, out.data, nullptr, bytes, bytes};
}

/// An output that a step has made: the caller gets its memory, or a copy where the caller wants it.
void Session::Impl::hand_over(int buffer, RunContext& ctx) const {
  const int output = plan->buffers[buffer].index;
  const SignatureEntry& entry = plan->outputs[output];
  const BufferShape& shape = ctx.shapes.buffers[buffer];
  RunTensor& out = ctx.run_outputs[output];
  RunContext::Made& made = ctx.made[buffer];
  if (out.on_device) {
    place_output(out, entry, shape, ctx);
    ctx.made_on_host.back().memory = made.memory;
    ctx.pointers[buffer] = made.memory.get();
  } else if (out.data) {
    place_output(out, entry, shape, ctx);
    if (shape.bytes > 0) std::memcpy(out.data, made.memory.get(), static_cast<size_t>(shape.bytes));
    let_go(buffer, ctx);
  } else {
    out.owner = made.memory;
    out.data = out.owner.get();
    out.dtype = entry.dtype;
    out.dims = shape.sizes;
    if (is_complex(out.dtype)) out.dims.pop_back();
  }
}

/// Of memory that a step has made.
void Session::Impl::let_go(int buffer, RunContext& ctx) const {
  ctx.made_bytes -= ctx.made[buffer].bytes;
  ctx.made[buffer] = {};
}

void Session::Impl::end_finding(RunContext& ctx) const {
  ctx.made.clear();
  ctx.blocks.end();
  ctx.device_blocks.end();
}

} // namespace tbx::runtime
