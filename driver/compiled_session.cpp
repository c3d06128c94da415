// Session::compile: a session of a model, with the compiler behind it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "driver/compile.h"
#include "driver/describe.h"
#include "driver/limits.h"
#include "driver/load_options.h"
#include "driver/make_package.h"
#include "driver/specialiser.h"
#include "driver/value_compile.h"
#include "graph/analysis/input_ranges.h"
#include "graph/partition/every_value.h"
#include "graph/partition/value_graph.h"
#include "package/guarded.h"
#include "package/session_impl.h"
#include "runtime/session.h"

namespace tbx {
namespace driver {
namespace {

class CompiledSession final : public Session::Impl {
public:
  Source source;
  std::vector<std::byte> bytes; ///< the model, when it came from memory
  CompileOptions options;

  void finish() {
    settle_options();
    const Loading loading(options);
    CompileStats stats;
    device = device_of(options);
    Graph graph = read_model(stats);
    std::string parts; // why it runs in parts
    if (!graph::needs_values(graph) && compile_whole(graph, stats, parts)) return;
    refuse_state(parts.empty() ? "the model has values that are no tensors, or control flow" : parts);
    values_ = compile_values(std::move(graph), options, std::move(stats));
    if (options.log && !parts.empty()) options.log("runs in parts: " + parts);
    value_session = std::make_unique<runtime::ValueSession>(values_.bind());
    set_signature(values_.plan->inputs, values_.plan->outputs);
  }

  /// Whatever a run brings, the model is read again for it: nothing of it is kept but the code.
  void make_specialiser(const Graph& graph) {
    std::vector<std::string> names;
    for (ValueId id : graph.inputs) names.push_back(graph.at(id).name);
    auto graph_for = [this, names](const std::vector<InputKind>& kinds, bool, CompileStats& stats,
                                   std::optional<Isa> isa) {
      std::map<std::string, std::vector<int64_t>> shapes; // where all sizes are known
      for (size_t i = 0; i < kinds.size(); ++i)
        if (kinds[i].dims &&
            std::all_of(kinds[i].dims->begin(), kinds[i].dims->end(), [](int64_t d) { return d >= 0; }))
          shapes[names[i]] = *kinds[i].dims;
      return prepare_graph(source, options, shapes, stats, nullptr, isa);
    };
    specialiser_ = std::make_unique<Specialiser>(names, std::move(graph_for),
                                                 std::make_shared<const CompileOptions>(options));
  }

  CompileStats stats() const override {
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
  void settle_options() {
    package::check_threads(options.threads);
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
    if (options.log)
      options.log = [log = options.log](const std::string& text) { log(printable(text, Lines::kept)); };
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
  bool compile_whole(Graph& graph, const CompileStats& stats, std::string& parts) {
    make_specialiser(graph);
    const std::optional<lowering::Demand> demand = specialiser_->lower_declared(graph, {}, stats);
    if (!demand) {
      keep_signature(graph); // the program has the constants that it needs, and gives them up
      plain_ = specialiser_->build_declared(graph);
      set_signature(plain_->bound->executable->inputs, plain_->bound->executable->outputs);
      state = package::KeptState::of(*plain_->bound->executable, plain_->bound->on_device ? device : nullptr,
                                     run_with.max_memory);
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
    if (demand->kind == Kind::split) parts = demand->reason.what();
    specialiser_.reset();
    return false;
  }

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
