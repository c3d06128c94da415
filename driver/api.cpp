// The public API (include/tensorbox/tensorbox.h) over the pipeline: turns exceptions into Results.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/fork.h"
#include "base/printable.h"
#include "base/random_streams.h"
#include "base/stack.h"
#include "device/device.h"
#include "driver/compile.h"
#include "driver/describe.h"
#include "driver/every_value.h"
#include "driver/input_ranges.h"
#include "driver/limits.h"
#include "driver/optimize.h"
#include "driver/specialiser.h"
#include "driver/value_api.h"
#include "driver/value_compile.h"
#include "driver/value_graph.h"
#include "importer/function_body.h"
#include "lowering/op_registry.h"
#include "runtime/generation/generation.h"
#include "runtime/session.h"
#include "runtime/shape_plan.h"
#include "runtime/value_op.h"
#include "runtime/value_session.h"
#include "tensorbox/tensorbox.h"

namespace tbx {
namespace {

Failure failure_of(const std::exception& e) {
  if (const auto* error = dynamic_cast<const Error*>(&e))
    return {static_cast<Failure::Kind>(error->kind()), error->what()};
  if (dynamic_cast<const std::bad_alloc*>(&e)) return {Failure::model_error, "ModelError: out of memory"};
  return {Failure::internal_error, "InternalError: " + printable(e.what(), Lines::kept)};
}

/// What `f` gives, or why it failed.
template <class F> auto guarded(F&& f) -> Result<decltype(f())> {
  try {
    CallScope call;
    std::optional<decltype(f())> result;
    with_stack([&] { result.emplace(f()); });
    return std::move(*result);
  } catch (const std::exception& e) {
    return failure_of(e);
  }
}

constexpr int kMaxThreads = 4096; ///< what oneTBB's arenas bear with room to spare

void check(const CompileOptions& o) {
  TBX_MODEL(o.threads >= 0 && o.threads <= kMaxThreads, "option threads is {}: expected 0 to {}", o.threads,
            kMaxThreads);
}

/// Where explain and profile find a kernel.
struct PlanSteps {
  const runtime::BoundExecutable* bound;
  const std::vector<driver::StepInfo>* steps;
};

} // namespace

/// An executable and the session that runs it; one per specialisation.
struct Variant {
  std::string key; ///< what it is made for
  driver::Compiled compiled;
  std::unique_ptr<runtime::Session> session;
};

/// What the compiled code of a model depends on.
struct Needs {
  std::vector<std::string> value_inputs; ///< inputs whose elements it does (axes, target shapes)
  bool by_shapes = false;                ///< the sizes of the inputs
  bool operator==(const Needs&) const = default;

  /// Takes note of what must be known while compiling; false when that is known already.
  bool learn(const lowering::UnknownValueError& e) {
    bool news = false;
    for (const std::string& name : e.inputs)
      if (std::find(value_inputs.begin(), value_inputs.end(), name) == value_inputs.end()) {
        value_inputs.push_back(name);
        news = true;
      }
    // Where the values are known already, what is not are sizes.
    if (by_shapes || (!e.of_shapes && news)) return news;
    return by_shapes = e.of_shapes || !e.inputs.empty();
  }
};

constexpr size_t kMaxVariants = 32;

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

uint64_t seed_of(const CompileOptions& options) {
  if (options.seed) return static_cast<uint64_t>(*options.seed);
  std::lock_guard lock(default_seed().mutex);
  return default_seed().seed ? static_cast<uint64_t>(*default_seed().seed) : fresh_seed();
}

} // namespace

struct Session::Impl {
  driver::Source source;
  std::vector<std::byte> bytes; ///< the model, when it came from memory
  CompileOptions options;
  std::vector<TensorInfo> inputs, outputs;
  ModelMetadata metadata;
  std::map<std::string, std::string> producers; ///< of the outputs: "name (OpType)"
  std::map<std::string, IntegerRange> ranges;   ///< of the inputs
  std::map<std::string, size_t> input_index;
  std::map<std::string, InputDefault> defaults; ///< initializers that the model declares as inputs
  std::vector<TensorInfo> overridable_initializers;
  int threads = 0;
  std::unique_ptr<RandomStreams> random; ///< shared by all variants

  /// Models with other values than numeric tensors, or bodies that run: nothing else is used for them.
  driver::ValueProgram values;
  std::unique_ptr<runtime::ValueSession> value_session;

  /// The program for any inputs, when there is one: most models have no other.
  std::shared_ptr<const Variant> plain;
  mutable driver::Specialiser<Variant, Needs> variants{kMaxVariants};

  void finish() {
    check(options);
    if (options.reference) {
      options.compile = options.fuse = options.fuse_extern = false;
      // Constants are folded by what computes fastest: here they are left to the run.
      options.disabled_passes.emplace_back("fold_constants");
    }
    options = driver::with_limits(std::move(options));
    const driver::Loading loading(options);
    threads = options.threads > 0 ? options.threads : runtime::default_threads();
    random = std::make_unique<RandomStreams>(seed_of(options));
    if (options.log)
      options.log = [log = options.log](const std::string& text) { log(printable(text, Lines::kept)); };
    CompileStats stats;
    std::vector<InputDefault> declared;
    Graph graph = driver::prepare_graph(source, options, {}, stats, &declared);
    for (InputDefault& d : declared) {
      const bool named = std::count(options.overridable.begin(), options.overridable.end(), d.name) > 0;
      if (d.by_choice || named) overridable_initializers.push_back(driver::info_of(d));
      if (!named) d.value = nullptr; // a constant's memory is the plan's business
      defaults.emplace(d.name, std::move(d));
    }
    metadata = driver::metadata_of(graph);
    producers = driver::producers_of_outputs(graph);
    ranges = driver::ranges_of_inputs(graph);
    std::string parts; // why it runs in parts
    if (!driver::needs_values(graph)) {
      try {
        plain = variant_of(compile_plain(graph, stats), {});
        variants.add(plain);
        set_signature(plain->compiled.executable().inputs, plain->compiled.executable().outputs);
        return;
      } catch (const lowering::UnknownValueError& e) {
        // What the code depends on are shapes: it is compiled for those of a run. Elements are a segment's
        // business.
        if (!driver::may_need_values(graph) && e.inputs.empty()) {
          Needs first;
          if (!variants.learn([&](Needs& needs) { return needs.learn(e) && (first = needs, true); })) throw;
          set_signature(driver::signature_of(graph));
          if (options.log)
            options.log(fmt::format("compiled at the first run, for the {} of its inputs: {}",
                                    first.by_shapes ? "shapes" : "values", e.message()));
          return;
        }
      } catch (const lowering::RuntimeValueError& e) {
        parts = e.what();
      }
    }
    values = driver::compile_values(std::move(graph), options, std::move(stats));
    if (options.log && !parts.empty()) options.log("runs in parts: " + parts);
    value_session = std::make_unique<runtime::ValueSession>(values.plan);
    set_signature(values.plan->inputs, values.plan->outputs);
  }

  /// For any sizes of the inputs. What is taken for granted of them may be what does not fit the model.
  driver::Compiled compile_plain(const Graph& graph, CompileStats& stats) const {
    try {
      return driver::compile_graph(graph, options, {}, stats);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::model) throw;
      try {
        return driver::compile_graph(graph, options, {.assume = driver::Assume::nothing}, stats);
      } catch (const Error& again) {
        if (again.kind() != ErrorKind::model) throw;
      }
      throw;
    }
  }

  template <class Entries> void set_signature(const Entries& in, const Entries& out) {
    for (const auto& e : in) {
      input_index[e.name] = inputs.size();
      inputs.push_back(driver::info_of(e));
      inputs.back().has_default = defaults.contains(e.name);
      if (auto it = ranges.find(e.name); it != ranges.end()) inputs.back().range = it->second;
    }
    for (const auto& e : out) {
      outputs.push_back(driver::info_of(e));
      if (auto it = producers.find(e.name); it != producers.end()) outputs.back().node = it->second;
    }
  }
  void set_signature(const driver::Signature& s) { set_signature(s.inputs, s.outputs); }

  std::shared_ptr<const Variant> variant_of(driver::Compiled compiled, std::string key) const {
    auto v = std::make_shared<Variant>();
    v->key = std::move(key);
    v->compiled = std::move(compiled);
    v->session = std::make_unique<runtime::Session>(
        v->compiled.bound, runtime::SessionOptions{.threads = options.threads,
                                                   .private_arena = options.private_threads,
                                                   .max_memory = options.max_memory});
    return v;
  }

  /// The limits that the session was made with hold for every run, and all draw from the same streams.
  runtime::RunOptions limited(runtime::RunOptions run_options) const {
    run_options.time_limit_ms = options.time_limit_ms;
    run_options.max_memory = options.max_memory;
    run_options.random = random.get();
    return run_options;
  }

  /// The variant for these inputs, compiled when they are of a new kind.
  std::shared_ptr<const Variant> variant_for(const std::vector<runtime::RunTensor>& given,
                                             driver::Assume assume) const {
    if (plain && assume == driver::Assume::broadcast_too) return plain;
    std::optional<Needs> of; // what `key` is for: variants are compared with one key
    std::string key;
    auto key_for = [&](const Needs& needs) -> const std::string& {
      if (of != needs) {
        of = needs;
        key = key_of(given, assume, needs);
      }
      return key;
    };
    return variants.get([&](const Needs& needs, const Variant& v) { return v.key == key_for(needs); },
                        [&](const Needs& needs) -> decltype(variants)::Request {
                          return {key_for(needs), [&, made_for = specialisation(given, assume, needs)] {
                                    const driver::Loading loading(options);
                                    return variant_of(driver::compile(source, options, made_for), key);
                                  }};
                        },
                        [](Needs& needs, const lowering::UnknownValueError& e) { return needs.learn(e); });
  }

  const runtime::RunTensor& given_for(const std::string& name,
                                      const std::vector<runtime::RunTensor>& given) const {
    return given.at(input_index.at(name));
  }

  driver::Specialisation specialisation(const std::vector<runtime::RunTensor>& given, driver::Assume assume,
                                        const Needs& needs) const {
    driver::Specialisation made_for;
    made_for.assume = assume;
    for (size_t i = 0; needs.by_shapes && i < given.size(); ++i)
      made_for.shapes[inputs[i].name] = given[i].dims;
    for (const std::string& name : needs.value_inputs) {
      const runtime::RunTensor& t = given_for(name, given);
      Tensor copy = Tensor::make(t.dtype, t.dims);
      if (copy.bytes() > 0) std::memcpy(copy.mutable_data(), t.data, static_cast<size_t>(copy.bytes()));
      made_for.known[name] = std::make_shared<const Tensor>(std::move(copy));
    }
    return made_for;
  }

  std::string key_of(const std::vector<runtime::RunTensor>& given, driver::Assume assume,
                     const Needs& needs) const {
    std::string key(1, static_cast<char>(assume));
    for (size_t i = 0; needs.by_shapes && i < given.size(); ++i) append_dims(key, given[i].dims);
    for (const std::string& name : needs.value_inputs) {
      const runtime::RunTensor& t = given_for(name, given);
      append_dims(key, t.dims);
      append_bytes(key, t.data, static_cast<size_t>(checked_numel(t.dims) * size_of(t.dtype)));
    }
    return key;
  }

  static void append_dims(std::string& to, const std::vector<int64_t>& dims) {
    auto rank = static_cast<int64_t>(dims.size());
    append_bytes(to, &rank, sizeof rank);
    append_bytes(to, dims.data(), dims.size() * sizeof(int64_t));
  }

  static void append_bytes(std::string& to, const void* from, size_t n) {
    if (n > 0) to.append(static_cast<const char*>(from), n);
  }

  /// Calls `put` with every given input and its place; ModelError when one is unknown, doubled or missing.
  template <class Given, class Put> void bind_by_name(const Given& given, Put put) const {
    std::vector<bool> seen(inputs.size(), false);
    for (const auto& [name, value] : given) {
      auto it = input_index.find(name);
      if (it == input_index.end()) throw_no_input(name);
      TBX_MODEL(!seen[it->second], "input '{}' is given twice", name);
      seen[it->second] = true;
      put(it->second, value);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!seen[i] && inputs[i].has_default) {
        seen[i] = true;
        put(i, driver::view_of(*defaults.at(inputs[i].name).value));
      }
      TBX_MODEL(seen[i] || (value_session && values.plan->inputs[i].may_be_none),
                "input '{}' is missing; the model's inputs are: {}", inputs[i].name, input_names());
    }
  }

  [[noreturn]] void throw_no_input(const std::string& name) const {
    if (defaults.contains(name))
      throw Error(
          ErrorKind::model,
          fmt::format("'{}' is an input of the model that has an initializer, which is a constant", name),
          fmt::format("compile with the option overridable = [\"{}\"] to make it an input", name));
    throw_model_error("the model has no input '{}'; its inputs are: {}", name, input_names());
  }

  std::vector<runtime::RunTensor> bind(const Inputs& given) const {
    std::vector<runtime::RunTensor> bound(inputs.size());
    bind_by_name(given, [&](size_t i, const TensorView& view) {
      bound[i].data = view.data;
      bound[i].dtype = static_cast<DType>(view.type);
      bound[i].dims = view.dims;
    });
    return bound;
  }

  /// A run of a model with values of any kind.
  template <class Given>
  std::vector<OnnxValue> run_value_session(const Given& given, const runtime::RunOptions& run_options) const {
    std::vector<RuntimeValue> in(inputs.size()), out;
    bind_by_name(given,
                 [&](size_t i, const auto& value) { in[i] = driver::to_runtime(value, inputs[i].name); });
    value_session->run(std::move(in), out, limited(run_options));
    std::vector<OnnxValue> result;
    for (RuntimeValue& v : out) result.push_back(driver::to_public(std::move(v)));
    return result;
  }

  std::vector<OutputTensor> tensors_of_values(const Inputs& given, const std::vector<TensorView>& into,
                                              const runtime::RunOptions& run_options) const {
    std::vector<OutputTensor> result;
    std::vector<OnnxValue> made = run_value_session(given, run_options);
    for (size_t i = 0; i < made.size(); ++i) {
      OnnxValue& v = made[i];
      if (v.kind != OnnxValue::tensor)
        throw Error(
            ErrorKind::unsupported,
            fmt::format("output '{}' is no tensor but {}", outputs[i].name, values.plan->outputs[i].type),
            "use Session::run_values");
      result.push_back(
          {outputs[i].name, v.type, std::move(v.dims), v.data, std::move(v.owner), std::move(v.strings)});
      if (i >= into.size() || !into[i].data) continue;
      OutputTensor& o = result.back();
      auto type = static_cast<DType>(o.type);
      TBX_MODEL(into[i].type == o.type && into[i].dims == o.dims, "output '{}' is {}[{}], its view is {}[{}]",
                o.name, name_of(type), fmt::join(o.dims, ", "), name_of(static_cast<DType>(into[i].type)),
                fmt::join(into[i].dims, ", "));
      if (o.strings)
        *static_cast<std::vector<std::string>*>(into[i].data) = *o.strings;
      else if (int64_t bytes = checked_numel(o.dims) * size_of(type); bytes > 0)
        std::memcpy(into[i].data, o.data, static_cast<size_t>(bytes));
    }
    return result;
  }

  Values run_values(const Values& given) const {
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

  std::string input_names() const {
    std::vector<std::string> names;
    for (const TensorInfo& i : inputs) names.push_back(i.name);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  std::vector<OutputTensor> run(const Inputs& given, const std::vector<TensorView>& into,
                                const runtime::RunOptions& run_options) const {
    TBX_MODEL(into.empty() || into.size() == outputs.size(),
              "{} output views given, the model has {} outputs", into.size(), outputs.size());
    if (value_session) return tensors_of_values(given, into, run_options);
    std::vector<runtime::RunTensor> in = bind(given), out;
    auto run_variant = [&](std::shared_ptr<const Variant> v) {
      // With every value shown, a variant made for known shapes may have more constants and fewer outputs.
      out.assign(v->compiled.executable().outputs.size(), {});
      TBX_MODEL(into.empty() || into.size() == out.size(), "{} output views given, the run has {} outputs",
                into.size(), out.size());
      for (size_t i = 0; i < into.size(); ++i) {
        out[i].data = into[i].data;
        out[i].dtype = static_cast<DType>(into[i].type);
        out[i].dims = into[i].dims;
      }
      v->session->run(in, out, limited(run_options));
      return v;
    };
    std::shared_ptr<const Variant> ran;
    for (auto assume = driver::Assume::broadcast_too; !ran; assume = less_than(assume)) try {
        ran = run_variant(variant_for(in, assume));
      } catch (const runtime::AssumptionError&) {
        if (assume == driver::Assume::nothing) throw;
      }
    std::vector<OutputTensor> result;
    for (size_t i = 0; i < out.size(); ++i)
      result.push_back({ran->compiled.executable().outputs[i].name, static_cast<int32_t>(out[i].dtype),
                        out[i].dims, out[i].data, out[i].owner, out[i].strings});
    return result;
  }

  /// All that was compiled, for explain and profile. `keep` holds it.
  std::vector<PlanSteps> compiled(std::vector<std::shared_ptr<const void>>& keep) const {
    std::vector<PlanSteps> all;
    if (auto variant = variants.latest()) {
      all.push_back({variant->compiled.bound.get(), &variant->compiled.steps});
      keep.push_back(variant);
    }
    for (const auto& segment : values.segments)
      for (const auto& c : segment->compiled()) {
        all.push_back({c->bound.get(), &c->steps});
        keep.push_back(c);
      }
    return all;
  }

  std::vector<KernelReport> reports(std::map<const runtime::Executable*, size_t>* first = nullptr) const {
    std::vector<KernelReport> result;
    std::vector<std::shared_ptr<const void>> keep;
    for (const PlanSteps& p : compiled(keep)) {
      const runtime::Executable& plan = *p.bound->executable;
      if (first) (*first)[&plan] = result.size();
      for (size_t i = 0; i < p.steps->size(); ++i) {
        const driver::StepInfo& s = (*p.steps)[i];
        KernelReport r;
        r.name = s.name;
        r.kind = s.kind;
        r.device = runtime::name_of(plan.steps[i].device);
        for (int o : s.origins)
          if (o >= 0 && o < static_cast<int>(plan.origin_names.size()))
            r.nodes.push_back(plan.origin_names[o]);
        r.decisions = s.decisions;
        for (const std::string& text : runtime::implementations_of(*p.bound, i, threads))
          r.decisions.push_back("implementation: " + text);
        r.bytes = s.bytes;
        r.flops = s.flops;
        result.push_back(std::move(r));
      }
    }
    return result;
  }
};

Result<Session> Session::compile(const std::string& onnx_file, const CompileOptions& options) {
  return guarded([&] {
    auto impl = std::make_shared<Impl>();
    impl->source = std::filesystem::path(onnx_file);
    impl->options = options;
    impl->finish();
    return Session(impl);
  });
}

Result<Session> Session::compile(std::span<const std::byte> onnx_bytes, const CompileOptions& options) {
  return guarded([&] {
    auto impl = std::make_shared<Impl>();
    ImportOptions import_options;
    driver::set_limits(import_options, driver::with_limits(options));
    check_model_bytes(onnx_bytes.size(), import_options); // before they are copied
    impl->bytes.assign(onnx_bytes.begin(), onnx_bytes.end());
    impl->source = std::span<const std::byte>(impl->bytes);
    impl->options = options;
    impl->finish();
    return Session(impl);
  });
}

const std::vector<TensorInfo>& Session::inputs() const { return impl_->inputs; }
const std::vector<TensorInfo>& Session::outputs() const { return impl_->outputs; }
const std::vector<TensorInfo>& Session::overridable_initializers() const {
  return impl_->overridable_initializers;
}
const ModelMetadata& Session::metadata() const { return impl_->metadata; }
CompileStats Session::stats() const {
  if (impl_->value_session) return impl_->values.stats;
  auto variant = impl_->variants.latest();
  return variant ? variant->compiled.stats : CompileStats{};
}
int Session::threads() const { return impl_->threads; }

Result<std::vector<OutputTensor>> Session::run(const Inputs& inputs) const {
  return guarded([&] { return impl_->run(inputs, {}, {}); });
}

Result<std::vector<OutputTensor>> Session::run(const Inputs& inputs,
                                               const std::vector<TensorView>& outputs) const {
  return guarded([&] { return impl_->run(inputs, outputs, {}); });
}

Result<Session::Values> Session::run_values(const Values& inputs) const {
  return guarded([&] { return impl_->run_values(inputs); });
}

Result<std::vector<KernelReport>> Session::profile(const Inputs& inputs,
                                                   std::vector<OutputTensor>* outputs) const {
  return guarded([&] {
    std::vector<runtime::StepProfile> profile;
    runtime::RunOptions options;
    options.profile = &profile;
    std::vector<OutputTensor> made = impl_->run(inputs, {}, options);
    if (outputs) *outputs = std::move(made);
    std::map<const runtime::Executable*, size_t> first;
    std::vector<KernelReport> reports = impl_->reports(&first);
    for (const runtime::StepProfile& p : profile) {
      auto plan = first.find(p.plan);
      if (plan == first.end()) continue; // of a variant that was thrown away meanwhile
      KernelReport& r = reports.at(plan->second + static_cast<size_t>(p.step));
      if (r.time_ns == 0) r.start_ns = p.start_ns;
      r.time_ns += p.duration_ns; // bodies run many times
      r.threads = p.threads;
      if (p.bytes > 0) r.bytes = p.bytes;
    }
    return reports;
  });
}

std::vector<KernelReport> Session::explain() const { return impl_->reports(); }

Result<std::string> Session::dump(const std::string& stage) const {
  return guarded([&] {
    const driver::Loading loading(impl_->options);
    return driver::dump_stage(impl_->source, impl_->options, stage);
  });
}

Result<std::vector<OutputTensor>> Session::run_observed(const Inputs& inputs,
                                                        const Observer& observer) const {
  return guarded([&] {
    runtime::RunOptions options;
    options.observe = [&](const runtime::Executable& plan, int, int buffer,
                          const extern_kernels::TensorRef& t) {
      const std::string& name = plan.buffers[buffer].name;
      if (name.empty()) return;
      // Observers see dense row-major tensors: channels-last memory is copied into order.
      std::vector<int64_t> dims(t.sizes.begin(), t.sizes.end());
      Tensor dense = Tensor::make(t.dtype, dims);
      int64_t width = size_of(t.dtype);
      std::vector<int64_t> index(dims.size(), 0);
      for (int64_t i = 0, n = dense.numel(); i < n; ++i) {
        int64_t at = 0;
        for (size_t d = 0; d < dims.size(); ++d) at += index[d] * t.strides[d];
        std::copy_n(static_cast<const std::byte*>(t.data) + at * width, width,
                    dense.mutable_data() + i * width);
        for (size_t d = dims.size(); d-- > 0;) {
          if (++index[d] < dims[d]) break;
          index[d] = 0;
        }
      }
      observer(name, TensorView{dense.mutable_data(), static_cast<int32_t>(t.dtype), dims});
    };
    return impl_->run(inputs, {}, options);
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

void detail::throw_other_type(int32_t type, int32_t as) {
  throw Exception({Failure::model_error,
                   fmt::format("ModelError: the tensor is {}, not {}", name_of(static_cast<DType>(type)),
                               name_of(static_cast<DType>(as)))});
}

std::string version() { return TBX_VERSION; }

Result<OptimizeReport> optimize(const std::string& onnx_file, const std::string& to,
                                const OptimizeOptions& options) {
  return guarded([&] { return driver::optimize(onnx_file, to, options); });
}

void set_seed(int64_t seed) {
  std::lock_guard lock(default_seed().mutex);
  default_seed().seed = seed;
}

std::string device_problem(const std::string& device) {
  try {
    device::open(device);
    return {};
  } catch (const std::exception& e) {
    return failure_of(e).message;
  }
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const fusion::Pass& p : fusion::graph_passes()) names.emplace_back(p.name);
  return names;
}

std::vector<OperatorInfo> operators() {
  std::map<std::pair<std::string, std::string>, OperatorInfo> found;
  auto add = [&](std::string_view domain, std::string_view name, int since, const char* how) {
    if (domain == "tensorbox") return; // what the compiler itself puts into graphs
    OperatorInfo& o = found[{std::string(domain), std::string(name)}];
    if (o.name.empty()) o = {std::string(domain), std::string(name), {}, how};
    if (o.how == how) o.since.push_back(since);
  };
  for (const lowering::OpEntry* e : lowering::Registry::instance().all())
    add(e->domain, e->name, e->since, "compiled");
  for (const runtime::ValueOpInfo& o : runtime::value_ops()) add(o.domain, o.op, o.since, "values");
  for (const runtime::GenerationOp& o : runtime::kGenerationOps) add("com.microsoft", o.name, 1, "values");
  for (const auto& [domain, name, since] : operators_with_body()) add(domain, name, since, "body");
  std::vector<OperatorInfo> result;
  for (auto& [key, info] : found) {
    std::sort(info.since.begin(), info.since.end());
    result.push_back(std::move(info));
  }
  return result;
}

} // namespace tbx
