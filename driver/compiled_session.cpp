// Session::compile: a session of a model, with the compiler behind it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/shown.h"
#include "driver/compile.h"
#include "driver/describe.h"
#include "driver/kept_plan.h"
#include "driver/limits.h"
#include "driver/load_options.h"
#include "driver/make_package.h"
#include "driver/plan_store.h"
#include "driver/specialiser.h"
#include "driver/stopwatch.h"
#include "driver/value_compile.h"
#include "graph/analysis/input_ranges.h"
#include "graph/partition/every_value.h"
#include "graph/partition/value_graph.h"
#include "package/guarded.h"
#include "package/package_file.h"
#include "package/session_impl.h"
#include "runtime/session.h"

namespace tbx {
namespace driver {
namespace {

/// Made when it is asked for, once.
template <class T> class OnDemand {
public:
  explicit OnDemand(std::function<T()> make) : make_(std::move(make)) {}
  const T& get() {
    const std::lock_guard lock(mutex_);
    if (!made_) made_ = make_();
    return *made_;
  }

private:
  const std::function<T()> make_;
  std::mutex mutex_;
  std::optional<T> made_;
};

class CompiledSession final : public Session::Impl {
public:
  Source source;
  std::vector<std::byte> bytes; ///< the model, when it came from memory
  CompileOptions options;

  void finish() {
    settle_options();
    const Loading loading(options);
    Stopwatch watch;
    PlanStore store(source, options);
    if (start_kept(store)) {
      kept_ms_ = watch.lap();
    } else if (!store.unused().empty()) {
      compile_model(nullptr);
      not_kept_ = store.unused();
    } else {
      source.places = std::make_shared<importer::TensorPlaces>();
      PlanRecorder recorder(source.places);
      notes_->into = &recorder.plan.notes;
      compile_model(&recorder);
      not_kept_ = keep(store, recorder);
      source.places = nullptr;
    }
    *notes_ = {};
  }

  /// `recorder` may be null.
  void compile_model(PlanRecorder* recorder) {
    CompileStats stats;
    device = device_of(options);
    Graph graph = read_model(stats);
    std::string parts; // why it runs in parts
    if (!graph::needs_values(graph) && compile_whole(graph, stats, parts, recorder)) return;
    refuse_state(parts.empty() ? "the model has values that are no tensors, or control flow" : parts);
    values_ = compile_values(std::move(graph), options, std::move(stats), recorder);
    if (options.log && !parts.empty()) options.log("runs in parts: " + parts);
    value_session = std::make_unique<runtime::ValueSession>(values_.bind());
    set_signature(values_.plan->inputs, values_.plan->outputs);
  }

  /// Whatever a run brings, the model is read again for it: nothing of it is kept but the code.
  void make_specialiser(std::vector<std::string> names) {
    auto graph_for = [this, names](const std::vector<InputKind>& kinds, bool, CompileStats& stats,
                                   std::optional<Isa> isa) {
      std::map<std::string, std::vector<int64_t>> shapes; // where sizes are known
      auto is_known = [](int64_t d) { return d >= 0; };
      for (size_t i = 0; i < kinds.size(); ++i)
        if (const auto& dims = kinds[i].dims;
            dims && (dims->empty() || std::any_of(dims->begin(), dims->end(), is_known)))
          shapes[names[i]] = *dims;
      Graph graph = prepare_graph(source, options, shapes, stats, nullptr, isa);
      graph::narrow_inputs(graph, kinds);
      return graph;
    };
    specialiser_ = std::make_unique<Specialiser>(std::move(names), std::move(graph_for),
                                                 std::make_shared<const CompileOptions>(options));
  }

  CompileStats stats() const override {
    CompileStats all = stats_of_programs();
    all.not_kept = not_kept_;
    if (all.kept_plan) {
      all.nodes = kept_nodes_;
      all.total_ms = kept_ms_;
    }
    return all;
  }

  CompileStats stats_of_programs() const {
    if (value_session) {
      CompileStats all = values_.stats;
      all.evaluated_kernels = 0;
      for (const auto& segment : values_.segments)
        for (const auto& v : segment->specialiser().variants())
          all.evaluated_kernels += v->stats.evaluated_kernels;
      return all;
    }
    auto variant = specialiser_->latest();
    return variant ? variant->stats : CompileStats{};
  }

  std::string dump(const std::string& stage) const override {
    const Loading loading(options);
    return dump_stage(source, options, stage);
  }

  PackageReport save(const std::string& file, const PackageOptions& how) const override {
    keep_model(file);
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
      maker.add_values(values_);
      return maker.write(file);
    }
    // Where such a model waits for runs, it is for shapes, of which there is no end. Where it does not, runs
    // may have needed other code than that of all inputs: for sizes that break what it assumes.
    const bool plain = plain_ && !how.for_inputs_seen;
    maker.add_stage(*specialiser_, plain ? Coverage{{plain_}, true} : compiled_variants(*specialiser_),
                    "the model");
    return maker.write(file);
  }

  /// Throws Error (model) where a package written to `file` would replace what the model was read from.
  void keep_model(const std::string& file) const {
    const auto* model = std::get_if<std::filesystem::path>(&source.from);
    struct stat facts {};
    std::error_code none;
    if (stat(file.c_str(), &facts) != 0 || S_ISDIR(facts.st_mode)) return;
    if (source.seen->has(facts) || (model && std::filesystem::equivalent(*model, file, none)))
      throw Error(ErrorKind::model,
                  fmt::format("the package would replace {}, which the model is in", shown(file)),
                  "give it another name");
  }

protected:
  std::shared_ptr<const package::Program> program_for(const std::vector<runtime::RunTensor>& given,
                                                      Assume assume) const override {
    if (plain_ && assume == Assume::broadcast_too) return plain_;
    return specialiser_->variant_for(given, assume);
  }

  std::shared_ptr<const package::Program> plain_program() const override { return plain_; }

  std::vector<std::shared_ptr<const package::Program>> programs() const override {
    std::vector<std::shared_ptr<const package::Program>> all;
    if (specialiser_)
      for (const auto& v : specialiser_->variants()) all.push_back(v);
    return all;
  }

  std::vector<std::shared_ptr<const package::Program>> compiled() const override {
    std::vector<std::shared_ptr<const package::Program>> all;
    if (auto variant = specialiser_ ? specialiser_->latest() : nullptr) all.push_back(std::move(variant));
    for (const auto& segment : values_.segments)
      for (const auto& v : segment->specialiser().variants()) all.push_back(v);
    return all;
  }

private:
  /// Starts with the plan that is kept of this model. False where there is none, or it cannot be used.
  bool start_kept(PlanStore& store) {
    std::optional<ReadPlan> kept = store.find(source.seen);
    if (!kept) return false;
    notes_->once = true; // the cache says what is wrong with it again
    try {
      if (adopt(*kept)) return true;
    } catch (const Error& e) {
      store.drop(e.message());
    }
    source.seen = std::make_shared<importer::SeenFiles>();
    plain_.reset();
    specialiser_.reset();
    values_ = {};
    value_session.reset();
    state.reset();
    return false;
  }

  /// False where its kernels are no more in the cache.
  bool adopt(ReadPlan& kept) {
    for (const std::string& note : kept.plan.notes) options.log(note);
    if (options.progress) options.progress("kept plan", 0, 0);
    device = device_of(options);
    if (!(kept.values ? adopt_values(kept) : adopt_whole(kept.programs[0]))) return false;
    kept_nodes_ = kept.plan.nodes;
    metadata = std::move(kept.plan.metadata);
    inputs = std::move(kept.plan.inputs);
    outputs = std::move(kept.plan.outputs);
    overridable_initializers = std::move(kept.plan.overridable_initializers);
    defaults = std::move(kept.plan.defaults);
    for (size_t i = 0; i < inputs.size(); ++i) input_index[inputs[i].name] = i;
    return true;
  }

  bool adopt_whole(ReadProgram& program) {
    make_specialiser(program.inputs);
    const runtime::MadeFor made_for = program.made_for;
    std::optional<Compiled> compiled = bind_kept(std::move(program), options);
    if (!compiled) return false;
    plain_ = specialiser_->adopt(made_for, std::move(*compiled));
    make_state();
    return true;
  }

  bool adopt_values(ReadPlan& kept) {
    const auto shared = std::make_shared<const CompileOptions>(options);
    const auto original = std::make_shared<OnDemand<ValueProgram>>([this] {
      CompileOptions quiet = options;
      quiet.log = nullptr; // it was told already
      CompileStats unused;
      return compile_values(prepare_graph(source, quiet, {}, unused), quiet);
    });
    for (size_t i = 0; i < kept.programs.size(); ++i) {
      ReadProgram& program = kept.programs[i];
      auto segment = std::make_shared<Segment>(
          program.inputs, [original, i] { return original->get().segments.at(i); }, shared);
      const runtime::MadeFor made_for = program.made_for;
      std::optional<Compiled> compiled = bind_kept(std::move(program), options);
      if (!compiled) return false;
      segment->adopt(made_for, std::move(*compiled));
      values_.segments.push_back(std::move(segment));
    }
    values_.plan = kept.values;
    values_.stats.kept_plan = true;
    add_stats_of_segments(values_, values_.stats);
    value_session = std::make_unique<runtime::ValueSession>(values_.bind());
    return true;
  }

  std::string keep(PlanStore& store, PlanRecorder& recorder) {
    if (!plain_ && !value_session) recorder.refuse("the model is compiled for the shapes of each run");
    KeptPlan& plan = recorder.plan;
    plan.metadata = metadata;
    plan.inputs = inputs;
    plan.outputs = outputs;
    plan.overridable_initializers = overridable_initializers;
    plan.defaults = defaults;
    plan.nodes = stats().nodes;
    return store.keep(recorder, *source.seen);
  }

  void settle_options() {
    package::check_threads(options.threads);
    if (options.device == "cpu") options.device.clear();
    if (options.reference) {
      options.compile = options.fuse = options.fuse_extern = false;
      // Constants are folded by what computes fastest: here they are left to the run.
      options.disabled_passes.emplace_back("fold_constants");
    }
    TBX_MODEL(!options.tiered || (options.compile && options.device.empty()),
              "option tiered is for kernels that the C++ compiler builds: {}",
              options.compile ? "those of device '" + options.device + "' have no evaluator"
                              : "with compile=false or reference there are none");
    options = with_limits(std::move(options));
    options.log = [log = options.log, notes = notes_](const std::string& text) {
      if (notes->into) notes->into->push_back(text);
      if (log && (!notes->once || notes->said.insert(text).second)) log(printable(text, Lines::kept));
    };
    run_with = {.threads = options.threads,
                .private_arena = options.private_threads,
                .max_memory = options.max_memory,
                .log = options.log};
    time_limit_ms = options.time_limit_ms;
    random = std::make_unique<RandomStreams>(package::seed_of(options.seed));
  }

  /// The graph, and what the session tells of the model.
  Graph read_model(CompileStats& stats) {
    std::vector<InputDefault> declared;
    Graph graph = prepare_graph(source, options, {}, stats, &declared);
    for (InputDefault& d : declared) {
      const bool named = std::count(options.overridable.begin(), options.overridable.end(), d.name) > 0;
      if (d.by_choice || named) overridable_initializers.push_back(info_of(d));
      defaults.emplace(d.name, named ? d.value : nullptr); // a constant's memory is the plan's business
    }
    metadata = metadata_of(graph);
    producers_ = graph::producers_of_outputs(graph);
    ranges_ = graph::ranges_of_inputs(graph);
    return graph;
  }

  void refuse_state(const std::string& why) const {
    if (!options.state.empty()) throw_unsupported("option state: {}", why);
  }

  /// One program for the whole model, now or for the shapes of each run. False where it has to be split, and
  /// `parts` says why.
  bool compile_whole(Graph& graph, const CompileStats& stats, std::string& parts, PlanRecorder* recorder) {
    std::vector<std::string> names;
    for (ValueId id : graph.inputs) names.push_back(graph.at(id).name);
    make_specialiser(std::move(names));
    const std::optional<lowering::Demand> demand = specialiser_->lower_declared(graph, {}, stats);
    if (!demand) {
      keep_signature(graph); // the program has the constants that it needs, and gives them up
      plain_ = specialiser_->build_declared(graph, recorder);
      if (auto kept = specialiser_->take_kept()) recorder->plan.programs.push_back(std::move(*kept));
      set_signature(plain_->bound->executable->inputs, plain_->bound->executable->outputs);
      make_state();
      if (plain_->next) plain_.reset(); // another one will take its place
      return true;
    }
    using Kind = lowering::Demand::Kind;
    // Where the code depends on shapes alone it waits for those of a run. Elements are a segment's business.
    if (demand->kind == Kind::shapes && !graph::may_need_values(graph) && specialiser_->note(*demand)) {
      refuse_state(demand->reason.message());
      set_signature(signature_of(graph));
      if (options.log)
        options.log("compiled at the first run, for the shapes of its inputs: " + demand->reason.message());
      return true;
    }
    if (demand->kind == Kind::split)
      parts = demand->reason.where().empty()
                  ? demand->reason.message()
                  : fmt::format("{}: {}", demand->reason.where(), demand->reason.message());
    specialiser_.reset();
    return false;
  }

  void make_state() {
    state = package::KeptState::of(*plain_->bound->executable, plain_->bound->on_device ? device : nullptr,
                                   run_with.max_memory);
  }

  /// What becomes of notes for the log while the session starts.
  struct Notes {
    std::vector<std::string>* into = nullptr; ///< a kept plan has them
    bool once = false;                        ///< none is said twice
    std::set<std::string> said;
  };
  const std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
  std::string not_kept_;
  int kept_nodes_ = 0;                           ///< of the model, where the session started with a kept plan
  double kept_ms_ = 0;                           ///< and how long that took
  std::map<std::string, std::string> producers_; ///< of the outputs: "name (OpType)"
  std::map<std::string, graph::InputRange> ranges_;
  ValueProgram values_;
  /// The program for any inputs, when there is one that stays: most models have no other.
  Specialiser::VariantPtr plain_;
  std::unique_ptr<Specialiser> specialiser_; ///< none where the model runs in parts, which have their own

  template <class Entries> void set_signature(const Entries& in, const Entries& out) {
    for (const auto& e : in) {
      if constexpr (requires { e.state_axis; })
        if (e.state_axis >= 0) continue; // the session has it
      input_index[e.name] = inputs.size();
      inputs.push_back(info_of(e));
      inputs.back().has_default = defaults.contains(e.name);
      if (auto it = ranges_.find(e.name); it != ranges_.end())
        inputs.back().range = {it->second.least, it->second.below, it->second.distinct};
    }
    for (const auto& e : out) {
      outputs.push_back(info_of(e));
      if (auto it = producers_.find(e.name); it != producers_.end()) outputs.back().node = it->second;
    }
  }
  void set_signature(const Signature& s) { set_signature(s.inputs, s.outputs); }
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
    if (package::is_package(onnx_bytes))
      throw Error(ErrorKind::model, "the bytes are a package, which is loaded from its file",
                  "give the path");
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
