// The public API (include/tensorbox/tensorbox.h) of sessions: turns exceptions into Results.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/printable.h"
#include "base/shown.h"
#include "base/strided_copy.h"
#include "extern_kernels/catalogue.h"
#include "package/device_tensors.h"
#include "package/guarded.h"
#include "package/session_impl.h"
#include "package/value_api.h"
#include "runtime/memory.h"
#include "runtime/shape_plan.h"
#include "runtime/sources.h"

namespace tbx {

constinit thread_local package::EndOfRuns package::ends_runs;

CancelScope::CancelScope(const std::atomic<bool>& cancel)
    : outer_(package::ends_runs.cancel), outer_asked_(package::ends_runs.asked) {
  package::ends_runs.cancel = &cancel;
}
CancelScope::CancelScope(bool (*asked)())
    : outer_(package::ends_runs.cancel), outer_asked_(package::ends_runs.asked) {
  package::ends_runs.asked = asked;
}
CancelScope::~CancelScope() { package::ends_runs = {outer_, outer_asked_}; }

namespace package {

Failure failure_of(const std::exception& e) {
  if (const auto* error = dynamic_cast<const Error*>(&e))
    return {static_cast<Failure::Kind>(error->kind()), error->what()};
  if (dynamic_cast<const std::bad_alloc*>(&e)) return {Failure::model_error, "ModelError: out of memory"};
  return {Failure::internal_error, "InternalError: " + printable(e.what(), Lines::kept)};
}

void check_threads(int threads) {
  constexpr int kMaxThreads = 4096; // what oneTBB's arenas bear with room to spare
  TBX_MODEL(threads >= 0 && threads <= kMaxThreads, "option threads is {}: expected 0 to {}", threads,
            kMaxThreads);
}

namespace {

/// What set_seed said last.
struct DefaultSeed {
  std::mutex mutex;
  std::optional<int64_t> seed;
};
DefaultSeed& default_seed() {
  static DefaultSeed one;
  return one;
}

} // namespace

uint64_t seed_of(std::optional<int64_t> seed) {
  if (seed) return static_cast<uint64_t>(*seed);
  std::lock_guard lock(default_seed().mutex);
  return default_seed().seed ? static_cast<uint64_t>(*default_seed().seed) : fresh_seed();
}

TensorView view_of(const Tensor& t) {
  void* data =
      t.dtype == DType::string ? static_cast<void*>(t.strings.get()) : const_cast<std::byte*>(t.data);
  return {data, static_cast<int32_t>(t.dtype), t.dims};
}

/// The type that a library call multiplies, where that is f16 or bf16.
static DType narrow_operand(const runtime::Executable& executable, size_t step) {
  const auto* call = std::get_if<runtime::ExternStep>(&executable.steps[step].what);
  if (!call || std::holds_alternative<extern_kernels::HostProblem>(call->problem)) return DType::undefined;
  const DType type = executable.buffers[call->inputs[0].buffer].dtype;
  return is_half(type) ? type : DType::undefined;
}

void describe(const runtime::BoundExecutable& bound, std::vector<runtime::StepInfo>& steps) {
  for (size_t s = 0; s < steps.size(); ++s) {
    const runtime::BoundStep& step = bound.steps[s];
    if (!step.library) continue;
    steps[s].name = step.library->description();
    if (const DType type = narrow_operand(*bound.executable, s); type != DType::undefined)
      steps[s].name += fmt::format(" in {}", name_of(type));
    steps[s].decisions.push_back("kernel: " + step.chosen +
                                 (extern_kernels::is_plain_loops(step.chosen) ? " (plain loops: slow)" : ""));
    for (const std::string& refusal : step.refusals) steps[s].decisions.push_back("refused: " + refusal);
  }
}

} // namespace package

/// The limits that the session was made with hold for every run, and all draw from the same streams.
runtime::RunOptions Session::Impl::limited(runtime::RunOptions run_options) const {
  run_options.cancel = package::ends_runs.cancel;
  run_options.asked = package::ends_runs.asked;
  run_options.time_limit_ms = time_limit_ms;
  run_options.max_memory = run_with.max_memory;
  run_options.random = random.get();
  return run_options;
}

/// Calls `put` with every given input and its place; ModelError when one is unknown, doubled or missing.
template <class Given, class Put> void Session::Impl::bind_by_name(const Given& given, Put put) const {
  std::vector<bool> seen(inputs.size(), false);
  for (const auto& [name, value] : given) {
    auto it = input_index.find(name);
    if (it == input_index.end()) throw_no_input(name);
    TBX_MODEL(!seen[it->second], "input {} is given twice", shown(name));
    seen[it->second] = true;
    put(it->second, value);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!seen[i] && inputs[i].has_default) {
      seen[i] = true;
      put(i, package::view_of(*defaults.at(inputs[i].name)));
    }
    TBX_MODEL(seen[i] || (value_session && value_session->plan().inputs[i].may_be_none),
              "input {} is missing; the model's inputs are: {}", shown(inputs[i].name), input_names());
  }
}

void Session::Impl::throw_no_input(const std::string& name) const {
  if (defaults.contains(name))
    throw Error(
        ErrorKind::model,
        fmt::format("'{}' is an input of the model that has an initializer, which is a constant", name),
        fmt::format("compile with the option overridable = [\"{}\"] to make it an input", name));
  throw_model_error("the model has no input {}; its inputs are: {}", shown(name), input_names());
}

/// Memory of a GPU that the caller gives or asks for must be that of the session's.
void Session::Impl::check_device(const char* what, const std::string& name, int32_t number) const {
  if (number == kHost) return;
  if (!device)
    throw Error(
        ErrorKind::model,
        fmt::format("{} '{}' is in memory of cuda:{}, and the session runs on the CPU", what, name, number),
        fmt::format("copy it to the host, or compile with device = \"cuda:{}\"", number));
  if (number != device->properties().number)
    throw Error(ErrorKind::model,
                fmt::format("{} '{}' is in memory of cuda:{}, the session runs on cuda:{}", what, name,
                            number, device->properties().number),
                "copy it there");
}

std::vector<runtime::RunTensor> Session::Impl::bind(const Inputs& given,
                                                    const runtime::RunOptions& run_options) const {
  std::vector<runtime::RunTensor> bound(inputs.size());
  bind_by_name(given, [&](size_t i, const TensorView& view) {
    check_device("input", inputs[i].name, view.device);
    if (view.device != kHost) {
      const auto bytes =
          static_cast<size_t>(checked_numel(view.dims) * size_of(static_cast<DType>(view.type)));
      bound[i].on_device = true;
      bound[i].host_copy =
          std::make_shared<runtime::HostCopy>(device, view.data, bytes, run_options.stream.value_or(nullptr));
    }
    bound[i].data = view.data;
    bound[i].dtype = static_cast<DType>(view.type);
    bound[i].dims = view.dims;
  });
  if (state) state->append_to(bound);
  return bound;
}

/// A run of a model with values of any kind.
template <class Given>
std::vector<OnnxValue> Session::Impl::run_value_session(const Given& given,
                                                        const runtime::RunOptions& run_options) const {
  std::vector<RuntimeValue> in(inputs.size()), out;
  bind_by_name(given,
               [&](size_t i, const auto& value) { in[i] = package::to_runtime(value, inputs[i].name); });
  value_session->run(std::move(in), out, limited(run_options));
  std::vector<OnnxValue> result;
  result.reserve(out.size());
  for (RuntimeValue& v : out) result.push_back(package::to_public(std::move(v)));
  return result;
}

namespace {

/// What lies at `data` of an output, or will; nothing where that is nowhere.
std::span<const std::byte> memory_at(const void* data, const OutputTensor& o) {
  if (!data) return {};
  const int64_t bytes = o.strings ? static_cast<int64_t>(sizeof(std::vector<std::string>))
                                  : checked_numel(o.dims) * size_of(static_cast<DType>(o.type));
  return {static_cast<const std::byte*>(data), static_cast<size_t>(bytes)};
}

/// Writes outputs, which have memory of their own, into the views that have some, whose types and shapes are
/// theirs.
void write_into(const std::vector<OutputTensor>& made, const std::vector<TensorView>& into) {
  std::vector<std::span<const std::byte>> taken(made.size());
  for (size_t i = 0; i < into.size(); ++i) taken[i] = memory_at(into[i].data, made[i]);
  for (size_t i = 0; i < made.size(); ++i)
    for (size_t other = 0; other < i; ++other)
      TBX_MODEL(!runtime::overlap(taken[i], taken[other]), "outputs '{}' and '{}' are given the same memory",
                made[other].name, made[i].name);
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i].empty()) continue;
    if (made[i].strings)
      *static_cast<std::vector<std::string>*>(into[i].data) = *made[i].strings;
    else
      std::memcpy(into[i].data, made[i].data, taken[i].size());
  }
}

} // namespace

std::vector<OutputTensor> Session::Impl::tensors_of_values(const Inputs& given,
                                                           const std::vector<TensorView>& into,
                                                           const runtime::RunOptions& run_options) const {
  std::vector<OutputTensor> result;
  std::vector<OnnxValue> made = run_value_session(given, run_options);
  for (size_t i = 0; i < made.size(); ++i) {
    OnnxValue& v = made[i];
    if (v.kind != OnnxValue::tensor)
      throw Error(ErrorKind::unsupported,
                  fmt::format("output '{}' is no tensor but {}", outputs[i].name,
                              value_session->plan().outputs[i].type),
                  "use Session::run_values");
    result.push_back(
        {outputs[i].name, v.type, std::move(v.dims), v.data, std::move(v.owner), std::move(v.strings)});
    if (i >= into.size() || !into[i].data) continue;
    const OutputTensor& o = result.back();
    TBX_MODEL(into[i].type == o.type && into[i].dims == o.dims, "output '{}' is {}[{}], its view is {}[{}]",
              o.name, name_of(static_cast<DType>(o.type)), fmt::join(o.dims, ", "),
              name_of(static_cast<DType>(into[i].type)), fmt::join(into[i].dims, ", "));
  }
  write_into(result, into);
  return result;
}

Session::Values Session::Impl::run_values(const Values& given) const {
  Values result;
  if (value_session) {
    std::vector<OnnxValue> made = run_value_session(given, {});
    for (size_t i = 0; i < made.size(); ++i) result.emplace_back(outputs[i].name, std::move(made[i]));
    return result;
  }
  Inputs views;
  for (const auto& [name, v] : given) {
    TBX_MODEL(v.kind == OnnxValue::tensor && !v.strings, "input '{}' is no numeric tensor", name);
    views.emplace_back(name, TensorView{v.data, v.type, v.dims});
  }
  for (OutputTensor& o : run(views, {}, {}))
    result.emplace_back(o.name, OnnxValue{OnnxValue::tensor,
                                          o.type,
                                          std::move(o.dims),
                                          o.data,
                                          std::move(o.owner),
                                          std::move(o.strings),
                                          {}});
  return result;
}

std::string Session::Impl::input_names() const {
  std::vector<std::string> names;
  for (const TensorInfo& i : inputs) names.push_back(i.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void Session::Impl::place_outputs(const std::vector<TensorView>& into, std::vector<runtime::RunTensor>& out) {
  for (size_t i = 0; i < into.size(); ++i) {
    out[i].data = into[i].data;
    out[i].dtype = static_cast<DType>(into[i].type);
    out[i].dims = into[i].dims;
    out[i].on_device = into[i].device != kHost;
  }
}

/// Before a run: what the session keeps is among the inputs, in memory with room for what the run appends.
void Session::Impl::prepare_state(const package::Program& program, std::vector<runtime::RunTensor>& in,
                                  const std::vector<runtime::RunTensor>& out) const {
  if (!state || state->expect(*program.bound->executable, in)) return;
  synchronize(); // runs that nobody waited for are at the memory
  state->make_room(in, run_with.max_memory > 0 ? program.session->run_bytes(in, out) : 0);
}

void Session::Impl::run_program(const package::Program& program, const std::vector<runtime::RunTensor>& in,
                                std::vector<runtime::RunTensor>& out,
                                const runtime::RunOptions& run_options) const {
  if (!program.bound->on_device) {
    if (state && device) throw_unsupported("no work of this run is the device's, where the state is");
    if (run_options.async) package::throw_not_async();
  }
  if (program.bound->on_device || !device) return program.session->run(in, out, limited(run_options));
  // Nothing of this program has a kernel for the device: what lies there goes through the host.
  std::vector<runtime::RunTensor> here = in, made = out;
  for (runtime::RunTensor& t : here)
    if (t.on_device) t.data = const_cast<void*>(runtime::host_elements(t)), t.on_device = false;
  for (runtime::RunTensor& t : made)
    if (t.on_device) t.data = nullptr, t.on_device = false;
  program.session->run(here, made, limited(run_options));
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].on_device)
      package::to_device(device, made[i], out[i]);
    else
      out[i] = std::move(made[i]);
}

std::vector<OutputTensor> Session::Impl::run(const Inputs& given, const std::vector<TensorView>& into,
                                             const runtime::RunOptions& run_options) const {
  TBX_MODEL(into.empty() || into.size() == outputs.size(), "{} output views given, the model has {} outputs",
            into.size(), outputs.size());
  if (value_session) return run_through_host(given, into, run_options);
  std::unique_lock<std::mutex> alone;
  if (state) alone = std::unique_lock(state->mutex());
  std::vector<runtime::RunTensor> in = bind(given, run_options), out;
  for (size_t i = 0; i < into.size(); ++i) check_device("output", outputs[i].name, into[i].device);
  const std::shared_ptr<const package::Program> ran = with_program(in, [&](const package::Program& program) {
    // With every value shown, a variant made for known shapes may have more constants and fewer outputs.
    out.assign(program.bound->executable->outputs.size(), {});
    TBX_MODEL(into.empty() || into.size() == out.size(), "{} output views given, the run has {} outputs",
              into.size(), out.size());
    place_outputs(into, out);
    if (run_options.async && into.empty())
      for (runtime::RunTensor& o : out) o.on_device = true;
    prepare_state(program, in, out);
    run_program(program, in, out, run_options);
  });
  if (state) state->grow();
  std::vector<OutputTensor> result;
  result.reserve(out.size());
  for (size_t i = 0; i < out.size(); ++i)
    result.push_back({ran->bound->executable->outputs[i].name, static_cast<int32_t>(out[i].dtype),
                      std::move(out[i].dims), out[i].data, std::move(out[i].owner), std::move(out[i].strings),
                      out[i].on_device ? device->properties().number : kHost});
  return result;
}

/// Values of any kind are the host's: what lies on the device is copied there, and outputs to it.
std::vector<OutputTensor> Session::Impl::run_through_host(const Inputs& given,
                                                          const std::vector<TensorView>& into,
                                                          const runtime::RunOptions& run_options) const {
  if (run_options.async) package::throw_not_async();
  Inputs here = given;
  std::vector<TensorView> views = into;
  std::vector<runtime::HostCopy> copies;
  copies.reserve(given.size());
  for (auto& [name, view] : here) {
    check_device("input", name, view.device);
    if (view.device == kHost) continue;
    const auto bytes = static_cast<size_t>(checked_numel(view.dims) * size_of(static_cast<DType>(view.type)));
    const std::string defect = device->defect_of(view.data, bytes);
    TBX_MODEL(defect.empty(), "input '{}' is not memory of cuda:{}, where the model runs: {}", name,
              device->properties().number, defect);
    view.data = copies.emplace_back(device, view.data, bytes, run_options.stream.value_or(nullptr)).get();
    view.device = kHost;
  }
  for (size_t i = 0; i < views.size(); ++i) {
    check_device("output", outputs[i].name, views[i].device);
    if (views[i].device != kHost) views[i] = {};
  }
  std::vector<OutputTensor> result = tensors_of_values(here, views, run_options);
  for (size_t i = 0; i < into.size(); ++i)
    if (into[i].device != kHost) result[i] = package::to_device(device, std::move(result[i]), into[i]);
  return result;
}

void Session::Impl::run_without_outputs(const Inputs& given, const runtime::RunOptions& run_options) const {
  auto on_host = [](const auto& input) { return input.second.device == kHost; };
  if (value_session && std::all_of(given.begin(), given.end(), on_host))
    run_value_session(given, run_options);
  else
    run(given, {}, run_options);
}

void Session::Impl::synchronize() const {
  for (const auto& program : programs()) program->session->synchronize();
}

/// What stands beside a step whose bytes and operations are not those of a run.
static constexpr const char* kGuessed = "bytes and operations are those of guessed sizes";

std::vector<KernelReport> Session::Impl::reports(package::ReportsByPlan* plans) const {
  std::vector<KernelReport> result;
  for (const std::shared_ptr<const package::Program>& p : compiled()) {
    const runtime::Executable& plan = *p->bound->executable;
    if (plans) (*plans)[&plan] = {result.size(), p->steps};
    const std::vector<std::vector<int>> sources = runtime::sources_of(plan);
    const auto first = static_cast<int>(result.size());
    for (size_t i = 0; i < p->steps.size(); ++i) {
      const runtime::StepInfo& s = p->steps[i];
      KernelReport r;
      r.name = s.name;
      r.kind = s.kind;
      r.device = runtime::name_of(plan.steps[i].device);
      for (int o : s.origins)
        if (o >= 0 && o < static_cast<int>(plan.origin_names.size())) r.nodes.push_back(plan.origin_names[o]);
      r.decisions = s.decisions;
      for (const std::string& text : runtime::implementations_of(*p->bound, i, threads()))
        r.decisions.push_back("implementation: " + text);
      // Many kernels pack their weights in the first run, when the layout is known.
      const auto& library = p->bound->steps[i].library;
      if (const int64_t packed = library ? library->packed_bytes() : 0; packed > 0)
        r.decisions.push_back(fmt::format("weights packed: {:.3f} MB", static_cast<double>(packed) / 1e6));
      const auto* call = std::get_if<runtime::ExternStep>(&plan.steps[i].what);
      if (const int64_t most = p->session->most_found(); call && !call->dynamic_outputs.empty() && most > 0)
        r.decisions.push_back(fmt::format("finds out sizes: runs so far took up to {:.3f} MB",
                                          static_cast<double>(most) / 1e6));
      if (p->bound->on_device)
        if (const std::string again = p->bound->on_device->recorded_again.text(i); !again.empty())
          r.decisions.push_back(again);
      r.bytes = s.bytes;
      r.flops = s.flops;
      for (int source : sources[i]) r.reads_from.push_back(first + source);
      if (s.guessed) r.decisions.push_back(kGuessed);
      result.push_back(std::move(r));
    }
  }
  return result;
}

const std::vector<TensorInfo>& Session::inputs() const { return impl_->inputs; }
const std::vector<TensorInfo>& Session::outputs() const { return impl_->outputs; }
const std::vector<TensorInfo>& Session::overridable_initializers() const {
  return impl_->overridable_initializers;
}
const ModelMetadata& Session::metadata() const { return impl_->metadata; }
std::vector<std::string> Session::made_for() const { return impl_->made_for(); }
CompileStats Session::stats() const { return impl_->stats(); }
int Session::threads() const { return impl_->threads(); }
int32_t Session::device() const { return impl_->device ? impl_->device->properties().number : kHost; }

Result<std::vector<OutputTensor>> Session::run(const Inputs& inputs) const {
  return package::guarded([&] { return impl_->run(inputs, {}, {}); });
}

Result<std::vector<OutputTensor>> Session::run(const Inputs& inputs,
                                               const std::vector<TensorView>& outputs) const {
  return package::guarded([&] { return impl_->run(inputs, outputs, {}); });
}

Result<std::vector<OutputTensor>> Session::run_on(void* stream, const Inputs& inputs,
                                                  const std::vector<TensorView>& outputs) const {
  return package::guarded([&] {
    runtime::RunOptions options;
    package::set_stream(options, impl_->device.get(), stream, false);
    return impl_->run(inputs, outputs, options);
  });
}

Result<std::vector<OutputTensor>> Session::run_async(void* stream, const Inputs& inputs,
                                                     const std::vector<TensorView>& outputs) const {
  return package::guarded([&] {
    runtime::RunOptions options;
    package::set_stream(options, impl_->device.get(), stream, true);
    return impl_->run(inputs, outputs, options);
  });
}

std::optional<Failure> Session::synchronize() const {
  return package::failure([&] { impl_->synchronize(); });
}

Result<Session::Values> Session::run_values(const Values& inputs) const {
  return package::guarded([&] { return impl_->run_values(inputs); });
}

Result<std::vector<KernelReport>> Session::profile(const Inputs& inputs,
                                                   std::vector<OutputTensor>* outputs) const {
  return package::guarded([&] {
    std::vector<runtime::StepProfile> profile;
    runtime::RunOptions options;
    options.profile = &profile;
    if (outputs)
      *outputs = impl_->run(inputs, {}, options);
    else
      impl_->run_without_outputs(inputs, options);
    package::ReportsByPlan plans;
    std::vector<KernelReport> reports = impl_->reports(&plans);
    for (const runtime::StepProfile& p : profile) {
      auto plan = plans.find(p.plan);
      if (plan == plans.end()) continue; // of a variant that was thrown away meanwhile
      KernelReport& r = reports.at(plan->second.first + static_cast<size_t>(p.step));
      if (r.time_ns == 0) r.start_ns = p.start_ns;
      r.time_ns += p.duration_ns; // bodies run many times
      r.threads = p.threads;
      if (p.bytes > 0) r.bytes = p.bytes;
      const runtime::StepInfo& info = plan->second.steps.at(static_cast<size_t>(p.step));
      if (info.work.empty() && info.flops > 0) continue; // of a package
      r.flops = runtime::flops_of(info, p.symbols);
      std::erase(r.decisions, kGuessed);
    }
    return reports;
  });
}

std::vector<KernelReport> Session::explain() const { return impl_->reports(); }

Result<std::string> Session::dump(const std::string& stage) const {
  return package::guarded([&] { return impl_->dump(stage); });
}

Result<PackageReport> Session::save(const std::string& file, const PackageOptions& options) const {
  return package::guarded([&] { return impl_->save(file, options); });
}

Result<std::vector<OutputTensor>> Session::run_observed(const Inputs& inputs,
                                                        const Observer& observer) const {
  return package::guarded([&] {
    runtime::RunOptions options;
    options.observe = [&](const runtime::Executable& plan, int, int buffer,
                          const extern_kernels::TensorRef& t) {
      const std::string& name = plan.buffers[buffer].name;
      if (name.empty()) return;
      // Observers see dense row-major tensors: channels-last memory is copied into order.
      std::vector<int64_t> dims(t.sizes.begin(), t.sizes.end());
      Tensor dense = Tensor::make(t.dtype, dims);
      copy_strided(static_cast<const std::byte*>(t.data), t.sizes, t.strides, size_of(t.dtype),
                   dense.mutable_data());
      observer(name, TensorView{dense.mutable_data(), static_cast<int32_t>(t.dtype), dims});
    };
    return impl_->run(inputs, {}, options);
  });
}

int64_t Session::state_length() const {
  if (!impl_->state) return 0;
  std::lock_guard lock(impl_->state->mutex());
  return impl_->state->length();
}

std::optional<Failure> Session::set_state(const Inputs& state) const {
  return package::failure([&] {
    TBX_MODEL(impl_->state, "the session keeps no state; the option state makes it");
    impl_->synchronize();
    std::lock_guard lock(impl_->state->mutex());
    impl_->state->set(state);
  });
}

size_t detail::numel_within(const std::vector<int64_t>& dims, size_t have) {
  size_t n = 1;
  bool fits = true, empty = false;
  for (int64_t d : dims) {
    fits &= d >= 0 && !__builtin_mul_overflow(n, static_cast<size_t>(d), &n);
    empty |= d == 0;
  }
  if (empty) n = 0;
  if ((!fits && !empty) || n > have)
    throw Exception(
        {Failure::model_error, fmt::format("ModelError: the tensor has {} elements, fewer than its dims [{}]",
                                           have, fmt::join(dims, ", "))});
  return n;
}

void detail::throw_on_device(int32_t device) {
  throw Exception({Failure::model_error,
                   fmt::format("ModelError: the tensor is in memory of cuda:{}; to_host copies it", device)});
}

void detail::throw_other_type(int32_t type, int32_t as) {
  throw Exception({Failure::model_error,
                   fmt::format("ModelError: the tensor is {}, not {}", name_of(static_cast<DType>(type)),
                               name_of(static_cast<DType>(as)))});
}

std::string version() { return TBX_VERSION; }

void set_seed(int64_t seed) {
  std::lock_guard lock(package::default_seed().mutex);
  package::default_seed().seed = seed;
}

} // namespace tbx
