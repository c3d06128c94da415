// Session::compile: a session of a model, with the compiler behind it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "driver/compile.h"
#include "driver/describe.h"
#include "driver/input_ranges.h"
#include "driver/limits.h"
#include "driver/load_options.h"
#include "driver/make_package.h"
#include "driver/specialiser.h"
#include "driver/value_compile.h"
#include "graph/partition/every_value.h"
#include "graph/partition/value_graph.h"
#include "package/guarded.h"
#include "package/session_impl.h"
#include "runtime/session.h"

namespace tbx {
namespace driver {
namespace {

/// An executable and the session that runs it; one per specialisation.
struct Variant : package::Program {
  std::string key; ///< what it is made for
  Specialisation made_for;
  CompileStats stats;
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

class CompiledSession final : public Session::Impl {
public:
  Source source;
  std::vector<std::byte> bytes; ///< the model, when it came from memory
  CompileOptions options;

  void finish() {
    package::check_threads(options.threads);
    if (options.reference) {
      options.compile = options.fuse = options.fuse_extern = false;
      // Constants are folded by what computes fastest: here they are left to the run.
      options.disabled_passes.emplace_back("fold_constants");
    }
    options = with_limits(std::move(options));
    const Loading loading(options);
    run_with = {.threads = options.threads,
                .private_arena = options.private_threads,
                .max_memory = options.max_memory};
    time_limit_ms = options.time_limit_ms;
    random = std::make_unique<RandomStreams>(package::seed_of(options.seed));
    if (options.log)
      options.log = [log = options.log](const std::string& text) { log(printable(text, Lines::kept)); };
    CompileStats stats;
    std::vector<InputDefault> declared;
    Graph graph = prepare_graph(source, options, {}, stats, &declared);
    for (InputDefault& d : declared) {
      const bool named = std::count(options.overridable.begin(), options.overridable.end(), d.name) > 0;
      if (d.by_choice || named) overridable_initializers.push_back(info_of(d));
      defaults.emplace(d.name, named ? d.value : nullptr); // a constant's memory is the plan's business
    }
    metadata = metadata_of(graph);
    producers = producers_of_outputs(graph);
    ranges = ranges_of_inputs(graph);
    std::string parts; // why it runs in parts
    if (!needs_values(graph)) {
      try {
        plain = variant_of(compile_plain(graph, stats), {}, {});
        variants.add(plain);
        set_signature(plain->bound->executable->inputs, plain->bound->executable->outputs);
        return;
      } catch (const lowering::UnknownValueError& e) {
        // What the code depends on are shapes: it is compiled for those of a run. Elements are a segment's
        // business.
        if (!may_need_values(graph) && e.inputs.empty()) {
          Needs first;
          if (!variants.learn([&](Needs& needs) { return needs.learn(e) && (first = needs, true); })) throw;
          set_signature(signature_of(graph));
          if (options.log)
            options.log(fmt::format("compiled at the first run, for the {} of its inputs: {}",
                                    first.by_shapes ? "shapes" : "values", e.message()));
          return;
        }
      } catch (const lowering::RuntimeValueError& e) {
        parts = e.what();
      }
    }
    values = compile_values(std::move(graph), options, std::move(stats));
    if (options.log && !parts.empty()) options.log("runs in parts: " + parts);
    value_session = std::make_unique<runtime::ValueSession>(values.plan);
    set_signature(values.plan->inputs, values.plan->outputs);
  }

  /// For any sizes of the inputs. What is taken for granted of them may be what does not fit the model.
  Compiled compile_plain(const Graph& graph, CompileStats& stats) const {
    try {
      return compile_graph(graph, options, {}, stats);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::model) throw;
      try {
        return compile_graph(graph, options, {.assume = Assume::nothing}, stats);
      } catch (const Error& again) {
        if (again.kind() != ErrorKind::model) throw;
      }
      throw;
    }
  }

  CompileStats stats() const override {
    if (value_session) return values.stats;
    auto variant = variants.latest();
    return variant ? variant->stats : CompileStats{};
  }

  std::string dump(const std::string& stage) const override {
    const Loading loading(options);
    return dump_stage(source, options, stage);
  }

  PackageReport save(const std::string& file, const PackageOptions& how) const override {
    const Loading loading(options);
    PackageMaker maker(options, how);
    package::PackageIndex& index = maker.index;
    index.metadata = metadata;
    index.inputs = inputs;
    index.outputs = outputs;
    index.overridable_initializers = overridable_initializers;
    index.defaults = defaults;
    index.options = described(options);
    index.stats = stats();
    if (value_session) {
      maker.add_values(values);
      return maker.write(file);
    }
    package::PackedStage& stage = index.stages.emplace_back();
    auto add = [&](const Variant& v) {
      auto graph = [&] {
        CompileStats unused;
        return prepare_graph(source, options, v.made_for.shapes, unused);
      };
      maker.add_program(stage, graph, v.made_for, conditions(v));
    };
    if (plain) {
      add(*plain);
    } else {
      for (const auto& v : variants.variants()) add(*v);
    }
    if (stage.programs.empty()) throw_not_compiled();
    return maker.write(file);
  }

protected:
  std::shared_ptr<const package::Program> program_for(const std::vector<runtime::RunTensor>& given,
                                                      Assume assume) const override {
    return variant_for(given, assume);
  }

  std::vector<package::PlanSteps> compiled(std::vector<std::shared_ptr<const void>>& keep) const override {
    std::vector<package::PlanSteps> all;
    if (auto variant = variants.latest()) {
      all.push_back({variant->bound.get(), &variant->steps});
      keep.push_back(variant);
    }
    for (const auto& segment : values.segments)
      for (const auto& c : segment->compiled()) {
        all.push_back({c->bound.get(), &c->steps});
        keep.push_back(c);
      }
    return all;
  }

private:
  std::map<std::string, std::string> producers; ///< of the outputs: "name (OpType)"
  std::map<std::string, IntegerRange> ranges;   ///< of the inputs
  ValueProgram values;
  /// The program for any inputs, when there is one: most models have no other.
  std::shared_ptr<const Variant> plain;
  mutable Specialiser<Variant, Needs> variants{kMaxVariants};

  [[noreturn]] void throw_not_compiled() const {
    const Needs needs = variants.knowledge();
    throw Error(
        ErrorKind::unsupported,
        needs.value_inputs.empty()
            ? std::string("the code of the model depends on the shapes of its inputs, which are not known "
                          "before a run")
            : fmt::format("the code of the model depends on the values of '{}', which are not known before a "
                          "run",
                          fmt::join(needs.value_inputs, "', '")),
        "fix dimensions (--dim), or run the session once with such inputs before saving it (tbx compile: "
        "give "
        "them with --input)");
  }

  /// The inputs that a variant serves.
  runtime::MadeFor conditions(const Variant& v) const {
    runtime::MadeFor c;
    c.assume = v.made_for.assume;
    if (v.made_for.shapes.empty() && v.made_for.known.empty()) return c;
    for (const TensorInfo& input : inputs) {
      auto shape = v.made_for.shapes.find(input.name);
      auto known = v.made_for.known.find(input.name);
      c.kinds.push_back(
          {DType::undefined, shape == v.made_for.shapes.end() ? std::nullopt : std::optional(shape->second)});
      c.values.push_back(known == v.made_for.known.end() ? nullptr : known->second);
    }
    c.elements.resize(inputs.size());
    return c;
  }

  template <class Entries> void set_signature(const Entries& in, const Entries& out) {
    for (const auto& e : in) {
      input_index[e.name] = inputs.size();
      inputs.push_back(info_of(e));
      inputs.back().has_default = defaults.contains(e.name);
      if (auto it = ranges.find(e.name); it != ranges.end()) inputs.back().range = it->second;
    }
    for (const auto& e : out) {
      outputs.push_back(info_of(e));
      if (auto it = producers.find(e.name); it != producers.end()) outputs.back().node = it->second;
    }
  }
  void set_signature(const Signature& s) { set_signature(s.inputs, s.outputs); }

  std::shared_ptr<const Variant> variant_of(Compiled compiled, std::string key,
                                            Specialisation made_for) const {
    auto v = std::make_shared<Variant>();
    v->key = std::move(key);
    v->made_for = std::move(made_for);
    v->bound = std::move(compiled.bound);
    v->steps = std::move(compiled.steps);
    v->stats = std::move(compiled.stats);
    v->session = std::make_unique<runtime::Session>(v->bound, run_with);
    return v;
  }

  /// The variant for these inputs, compiled when they are of a new kind.
  std::shared_ptr<const Variant> variant_for(const std::vector<runtime::RunTensor>& given,
                                             Assume assume) const {
    if (plain && assume == Assume::broadcast_too) return plain;
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
                                    const Loading loading(options);
                                    return variant_of(compile(source, options, made_for), key, made_for);
                                  }};
                        },
                        [](Needs& needs, const lowering::UnknownValueError& e) { return needs.learn(e); });
  }

  const runtime::RunTensor& given_for(const std::string& name,
                                      const std::vector<runtime::RunTensor>& given) const {
    return given.at(input_index.at(name));
  }

  Specialisation specialisation(const std::vector<runtime::RunTensor>& given, Assume assume,
                                const Needs& needs) const {
    Specialisation made_for;
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

  std::string key_of(const std::vector<runtime::RunTensor>& given, Assume assume, const Needs& needs) const {
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
};

} // namespace
} // namespace driver

Result<Session> Session::compile(const std::string& onnx_file, const CompileOptions& options) {
  if (is_package(onnx_file)) {
    auto how = package::guarded([&] { return driver::load_options(options); });
    return how ? load(onnx_file, how.value()) : how.error();
  }
  return package::guarded([&] {
    auto impl = std::make_shared<driver::CompiledSession>();
    impl->source = std::filesystem::path(onnx_file);
    impl->options = options;
    impl->finish();
    return Session(impl);
  });
}

Result<Session> Session::compile(std::span<const std::byte> onnx_bytes, const CompileOptions& options) {
  return package::guarded([&] {
    auto impl = std::make_shared<driver::CompiledSession>();
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

} // namespace tbx
