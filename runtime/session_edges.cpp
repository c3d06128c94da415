// What goes into a run and comes out of it: memory of outputs, and on a device the copies at the edges.
#include "runtime/session_impl.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/run_checks.h"

namespace tbx::runtime {
namespace {

/// Memory of the caller's that is said to be the device's.
void check_place(const BoundExecutable& bound, const char* what, const std::string& name, const void* data,
                 int64_t bytes) {
  if (!bound.on_device)
    throw Error(ErrorKind::model,
                fmt::format("{} '{}' is in memory of a GPU, and the model runs on the CPU alone", what, name),
                "copy it to the host, or compile with the option device");
  const std::string defect = bound.on_device->device->defect_of(data, static_cast<size_t>(bytes));
  TBX_MODEL(defect.empty(), "{} '{}' is not memory of cuda:{}, where the model runs: {}", what, name,
            bound.on_device->device->properties().number, defect);
}

/// Of a state also what it has room for.
int64_t bytes_of(const Executable& plan, size_t input, const RunTensor& t) {
  const SignatureEntry& entry = plan.inputs[input];
  if (entry.state_axis < 0) return checked_numel(t.dims) * size_of(t.dtype);
  int64_t bytes = size_of(t.dtype);
  for (size_t d = 0; d < t.dims.size(); ++d)
    bytes *= static_cast<int>(d) == entry.state_axis ? t.room : t.dims[d];
  return bytes;
}

/// Memory of the host; nothing where it has none.
std::span<const std::byte> host_memory_of(const RunTensor& t) {
  if (!t.data || t.on_device) return {};
  return {static_cast<const std::byte*>(t.data),
          static_cast<size_t>(checked_numel(t.dims) * size_of(t.dtype))};
}

/// Without the parts of a complex output, which its buffer has as a dimension of their own.
std::span<const int64_t> sizes_of(const SignatureEntry& entry, const BufferShape& shape) {
  return {shape.sizes.data(), shape.sizes.size() - (is_complex(entry.dtype) ? 1 : 0)};
}

} // namespace

/// Of memory of the caller's that is to take an output.
void Session::Impl::check_type(const RunTensor& out, const SignatureEntry& entry) {
  TBX_MODEL(out.dtype == entry.dtype, "output '{}' has type {}, expected {}", entry.name, name_of(out.dtype),
            name_of(entry.dtype));
}

/// Whether memory of the caller's can take the output.
void Session::Impl::check_output(const RunTensor& out, const SignatureEntry& entry,
                                 const BufferShape& shape) const {
  check_type(out, entry);
  const std::span<const int64_t> sizes = sizes_of(entry, shape);
  const bool fits = std::equal(out.dims.begin(), out.dims.end(), sizes.begin(), sizes.end());
  if (!fits && facts.later_buffers[entry.buffer])
    throw Error(ErrorKind::model,
                fmt::format("output '{}' has shape [{}] in this run, and memory of shape [{}]", entry.name,
                            fmt::join(sizes, ", "), fmt::join(out.dims, ", ")),
                "data decides its shape: a run that is given no memory for it allocates what it takes");
  TBX_MODEL(fits, "output '{}' has shape [{}], expected [{}]", entry.name, fmt::join(out.dims, ", "),
            fmt::join(sizes, ", "));
  if (out.on_device) check_place(*bound, "output", entry.name, out.data, shape.bytes);
}

/// Of inputs in memory that an output takes as well a copy is read: the step that writes the output may come
/// before one that reads them.
void Session::Impl::keep_from_outputs(RunContext& ctx, std::span<const RunTensor> inputs,
                                      std::span<const RunTensor> outputs) const {
  if (std::none_of(outputs.begin(), outputs.end(), [](const RunTensor& out) { return out.data; })) return;
  std::vector<std::span<const std::byte>>& taken = ctx.outputs_take; // kept: a run allocates nothing
  taken.resize(outputs.size());
  std::transform(outputs.begin(), outputs.end(), taken.begin(), host_memory_of);
  for (size_t o = 0; o < taken.size(); ++o)
    for (size_t other = 0; other < o; ++other)
      TBX_MODEL(!overlap(taken[o], taken[other]), "outputs '{}' and '{}' are given the same memory",
                plan->outputs[other].name, plan->outputs[o].name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (plan->inputs[i].state_axis >= 0) continue;
    const std::span<const std::byte> given = host_memory_of(inputs[i]);
    if (std::none_of(taken.begin(), taken.end(), [&](const auto& out) { return overlap(given, out); }))
      continue;
    ctx.kept_inputs.push_back(pool.get(static_cast<int64_t>(given.size())));
    ctx.pointers[plan->inputs[i].buffer] =
        std::memcpy(ctx.kept_inputs.back().get(), given.data(), given.size());
  }
}

/// Whether inputs that are said to be on the device are.
void Session::Impl::check_places(std::span<const RunTensor> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].on_device && plan->inputs[i].state_axis < 0)
      check_place(*bound, "input", plan->inputs[i].name, inputs[i].data, bytes_of(*plan, i, inputs[i]));
}

void Session::Impl::place_output(RunTensor& out, const SignatureEntry& entry, const BufferShape& shape,
                                 RunContext& ctx) const {
  const std::span<const int64_t> sizes = sizes_of(entry, shape);
  if (out.data) {
    check_output(out, entry, shape);
  } else if (out.on_device) {
    out.block = device_pool->get(static_cast<size_t>(shape.bytes), ctx.device->stream());
    out.owner = out.block;
    out.data = out.block->data();
    out.dtype = entry.dtype;
    out.dims.assign(sizes.begin(), sizes.end());
  } else {
    out.owner = pool.get(shape.bytes);
    out.data = out.owner.get();
    out.dtype = entry.dtype;
    out.dims.assign(sizes.begin(), sizes.end());
  }
  if (!out.on_device) {
    ctx.pointers[entry.buffer] = out.data;
    return;
  }
  // Where the host makes it, there is a place for it on the host, too, until the end of the run.
  const auto o = static_cast<size_t>(&entry - plan->outputs.data());
  if (bound->on_device->edges.outputs[o].twin >= 0) return;
  ctx.made_on_host.push_back({o, pool.get(shape.bytes), shape.bytes});
  ctx.pointers[entry.buffer] = ctx.made_on_host.back().memory.get();
}

/// What cannot run without the host waiting.
void Session::Impl::refuse_async(std::span<const RunTensor> outputs) const {
  const bool finds = bound->data_dependent;
  if (finds || !bound->on_device->is_recorded()) {
    auto waits = [&](const Step& step) {
      const auto* call = std::get_if<ExternStep>(&step.what);
      return finds ? call && !call->dynamic_outputs.empty() : step.device == DeviceKind::cpu;
    };
    Error e(ErrorKind::unsupported,
            finds ? "the host waits for the sizes of its results, and such a run cannot be asynchronous"
                  : "the host has work in every run, which cannot be asynchronous",
            "use run; `tbx explain` has the steps on the host");
    const auto step = std::find_if(plan->steps.begin(), plan->steps.end(), waits);
    if (step != plan->steps.end()) e.set_where(nodes_of(*plan, step->origins));
    throw e;
  }
  for (size_t o = 0; o < outputs.size(); ++o)
    TBX_MODEL(outputs[o].on_device, "output '{}' of an asynchronous run is memory of the host",
              plan->outputs[o].name);
}

/// How inputs meet their buffers on the device, and a copy on the host for steps there.
void Session::Impl::take_device_inputs(RunContext& ctx, std::span<const RunTensor> inputs) const {
  if (!bound->on_device) return;
  check_places(inputs);
  ctx.edges_in.assign(inputs.size(), {});
  ctx.edges_out.assign(plan->outputs.size(), {});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const RunTensor& t = inputs[i];
    const int64_t bytes = bytes_of(*plan, i, t);
    const PlanEdge& edge = bound->on_device->edges.inputs[i];
    if (t.on_device && edge.on_host)
      ctx.pointers[plan->inputs[i].buffer] = const_cast<void*>(host_elements(t));
    const auto size = static_cast<size_t>(bytes);
    ctx.edges_in[i] = {way_of(edge, t.on_device, t.data, size), t.data, nullptr, size, size};
  }
}

/// How outputs meet theirs, and all those buffers' places. `recorded`: work that is replayed as a graph.
DeviceContext::Mode Session::Impl::place_edges(RunContext& ctx, const ShapePlan& shapes,
                                               std::span<RunTensor> outputs, bool recorded) const {
  const PlanEdges& edges = bound->on_device->edges;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const BufferShape& shape = shapes.buffers[plan->outputs[o].buffer];
    if (!shape.known) continue; // when a step has found its sizes
    const auto bytes = static_cast<size_t>(shape.bytes);
    ctx.edges_out[o] = {way_of(edges.outputs[o], outputs[o].on_device, outputs[o].data, bytes),
                        outputs[o].data, nullptr, bytes, bytes};
  }
  auto give_room = [&](const std::vector<PlanEdge>& of, std::vector<EdgeUse>& uses) {
    for (size_t i = 0; i < uses.size(); ++i)
      if (of[i].twin >= 0 && uses[i].how == EdgeUse::How::staged)
        uses[i].room = std::max(uses[i].bytes, static_cast<size_t>(shapes.buffers[of[i].twin].room));
  };
  // One graph serves many lengths, and so it does addresses: of many graphs each would need its lengths.
  auto give_movers = [](const std::vector<std::optional<std::vector<int>>>& of, std::vector<EdgeUse>& uses) {
    for (size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].how != EdgeUse::How::direct) continue;
      if (of[i])
        uses[i].movers = &*of[i];
      else
        uses[i].how = EdgeUse::How::copied;
    }
  };
  if (!shapes.room.empty()) give_room(edges.inputs, ctx.edges_in), give_room(edges.outputs, ctx.edges_out);
  copy_what_overlaps(ctx.edges_in, ctx.edges_out);
  if (!shapes.room.empty())
    give_movers(growing.inputs, ctx.edges_in), give_movers(growing.outputs, ctx.edges_out);
  const DeviceContext::Mode mode =
      recorded ? ctx.device->choose(shapes.room.empty() ? shapes.symbols : shapes.room, ctx.edges_in,
                                    ctx.edges_out)
               : DeviceContext::Mode::now;
  auto place = [&](const std::vector<PlanEdge>& of, std::vector<EdgeUse>& uses) {
    for (size_t i = 0; i < uses.size(); ++i) {
      if (of[i].twin < 0) continue;
      void*& at = ctx.pointers[of[i].twin];
      if (is_in_place(uses[i])) at = uses[i].memory;
      uses[i].twin = at;
    }
  };
  place(edges.inputs, ctx.edges_in);
  place(edges.outputs, ctx.edges_out);
  return mode;
}

/// Runs with the same inputs and outputs begin with one start of a graph from then on, where all that a run
/// does is in there, with their addresses.
void Session::Impl::remember(RunContext& ctx, const ShapePlan& shapes, std::span<const RunTensor> outputs,
                             SameRuns& same) const {
  using How = EdgeUse::How;
  if (!shapes.room.empty() || !ctx.made_on_host.empty()) return;
  auto is_in_graph = [](const EdgeUse& use) {
    return use.how == How::direct || use.how == How::copied || (use.how == How::none && use.bytes == 0);
  };
  for (size_t i = 0; i < ctx.edges_in.size(); ++i) {
    // One that nothing reads has no place on the device.
    const PlanEdge& edge = bound->on_device->edges.inputs[i];
    if (edge.on_host || !(is_in_graph(ctx.edges_in[i]) || edge.twin < 0)) return;
  }
  for (size_t o = 0; o < outputs.size(); ++o)
    if (!outputs[o].on_device || !is_in_graph(ctx.edges_out[o])) return;
  ctx.device->remember(same.number);
}

/// All of a run whose work is in a graph.
bool Session::Impl::start_again(RunContext& ctx, const RunOptions& run_options) const {
  if (!run_options.same || run_options.profile || run_options.observe || !ctx.device) return false;
  if (!ctx.device->run_again(run_options.same->number, run_options.stream)) return false;
  ctx.timed.clear();
  ctx.made_on_host.clear();
  return true;
}

/// Whole buffers with the room that they have: a recorded graph keeps its order when sizes grow.
void Session::Impl::touched_by(size_t s, const RunContext& ctx, const ShapePlan& shapes,
                               std::vector<Access>& all) const {
  const Step& step = plan->steps[s];
  for_each_buffer(step, [&](int b, bool writes) {
    const auto* begin = static_cast<const std::byte*>(ctx.pointers[b]);
    if (!begin) return; // of no elements
    const std::byte* end = begin + std::max(shapes.buffers[b].bytes, shapes.buffers[b].room);
    if (kept[b]) // anywhere in the memory of the state
      for (const EdgeUse& use : ctx.edges_in) {
        const auto* state = static_cast<const std::byte*>(use.memory);
        if (use.how == EdgeUse::How::kept && begin >= state && begin < state + use.bytes)
          begin = state, end = state + use.bytes;
      }
    if (end > begin) all.push_back({begin, end, writes});
  });
  // Memory to work in is the same for all steps. Sizes that grow may need some where those of this run do
  // not.
  const StepShape& shape = shapes.steps[s];
  bool works = shape.scratch_bytes > 0 || shape.workspace_bytes > 0;
  if (std::binary_search(growing.steps.begin(), growing.steps.end(), static_cast<int>(s))) {
    const auto* kernel = std::get_if<KernelStep>(&step.what);
    works = works || !kernel || !kernel->scratch_bytes.is_constant() || !kernel->state_bytes.is_constant();
  }
  const auto* work = static_cast<const std::byte*>(ctx.device_work);
  if (works) all.push_back({work, work + 1, true});
}

/// Waits for the device, and for the times it took.
void Session::Impl::end_device(RunContext& ctx, std::span<RunTensor> outputs,
                               const RunOptions& run_options) const {
  if (!ctx.device) return;
  if (run_options.async) {
    for (RunTensor& out : outputs)
      if (out.block) out.block->made_on(ctx.device->stream().handle());
    ctx.device->leave();
    if (!run_options.same) return;
    auto& ends = run_options.same->ends;
    if (std::find(ends.begin(), ends.end(), ctx.device->left()) == ends.end())
      ends.push_back(ctx.device->left());
    return;
  }
  if (!ctx.made_on_host.empty()) ctx.device->wait();
  for (const RunContext::MadeOnHost& made : ctx.made_on_host)
    ctx.device->upload(outputs[made.output].data, made.memory.get(), static_cast<size_t>(made.bytes));
  ctx.device->wait();
  ctx.made_on_host.clear();
  for (const RunContext::Timed& t : ctx.timed) {
    StepProfile& p = (*run_options.profile)[t.entry];
    p.start_ns = ctx.device->elapsed_ns(0, t.begin);
    p.duration_ns = ctx.device->elapsed_ns(t.begin, t.end);
  }
}

} // namespace tbx::runtime
