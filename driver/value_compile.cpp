#include "driver/value_compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/stop.h"
#include "driver/kept_plan.h"
#include "driver/passes.h"
#include "driver/target.h"
#include "driver/value_steps.h"
#include "graph/partition/graph_part.h"
#include "graph/partition/splitter.h"
#include "lowering/lower.h"
#include "runtime/verify.h"

namespace tbx::driver {

using runtime::ValuePlan;
using runtime::ValueStep;

namespace {

/// A part of a graph, and what it is compiled from. Without outputs there is no segment.
struct StagePart {
  graph::Part part;
  std::shared_ptr<Segment> segment;
  std::vector<ValueId> from; ///< value of the segment's graph -> value of the whole graph
  int stage = -1;            ///< of the segment, in the plan
};

/// Lowers the parts of a graph, and splits it anew until all can be lowered; what one split has in common
/// with the next is lowered once.
class PartLowerer {
public:
  PartLowerer(Graph& g, ValueCompiler& compiler, bool is_body)
      : g_(g), compiler_(compiler), is_body_(is_body), split_(g) {}

  std::vector<StagePart> run() {
    std::optional<std::vector<StagePart>> parts;
    while (!(parts = lower_all())) {
    }
    return std::move(*parts);
  }
  const graph::Splitter& split() const { return split_; }

private:
  /// Nothing when a part demanded another split.
  std::optional<std::vector<StagePart>> lower_all() {
    std::vector<StagePart> parts;
    for (const graph::Part& part : split_.parts()) {
      parts.push_back({part, nullptr, {}, -1});
      if (part.outputs.empty()) continue;
      check_stop();
      if (!lower(parts.back())) return std::nullopt;
      if (parts.back().segment->waits() && split_.runs_later(parts.back().part)) return std::nullopt;
    }
    return parts;
  }

  bool lower(StagePart& p) {
    if (version_ != split_.version()) lowered_.clear();
    version_ = split_.version();
    if (auto before = lowered_.find(p.part); before != lowered_.end()) {
      p = before->second;
      return true;
    }
    p.segment = compiler_.segment(g_, p.part.nodes, p.part.inputs, p.part.outputs, is_body_, p.from);
    if (const auto demand = p.segment->lower(); demand && !p.segment->wait_for_runs(*demand)) {
      if (!split_.meet({p.segment->graph(), p.from}, *demand)) throw Error(demand->reason);
      return false;
    }
    lowered_.emplace(p.part, p);
    return true;
  }

  Graph& g_;
  ValueCompiler& compiler_;
  bool is_body_;
  graph::Splitter split_;
  int version_ = 0; ///< of the split that these are parts of
  std::map<graph::Part, StagePart> lowered_;
};

/// Nobody sees the names of a body's outputs: what only names one costs nothing. An output whose rank is
/// declared keeps it: a loop that does not run has nothing else that tells it.
bool only_names(const Graph& g, ValueId v) {
  if (g.at(v).producer < 0 || g.at(v).constant) return false;
  const Node& node = g.nodes[g.at(v).producer];
  return node.op_type == "Identity" && node.domain.empty() &&
         (g.at(node.inputs[0]).type.shape || !g.at(v).type.shape);
}

/// Steps of one graph over numbered slots.
class StepMaker {
public:
  StepMaker(Graph& g, ValueCompiler& compiler)
      : g_(g), compiler_(compiler), plan_(std::make_shared<ValuePlan>()) {}

  std::shared_ptr<const ValuePlan> run(const std::vector<StagePart>& parts,
                                       const std::vector<std::vector<int>>& value_nodes,
                                       size_t num_captures) {
    for (ValueId v : g_.inputs) plan_->inputs.push_back(entry(v, v < 0 || g_.at(v).constant ? -1 : slot(v)));
    for (size_t level = 0; level < parts.size(); ++level) {
      if (parts[level].segment) add_segment(parts[level]);
      for (int i : value_nodes[level]) add_node(g_.nodes[i]);
    }
    for (ValueId v : g_.outputs) {
      plan_->outputs.push_back(entry(v, slot(v)));
      runtime::ElementType& element = plan_->outputs.back().element;
      for (size_t d = 0; d < element.dims.size(); ++d)
        if (const int64_t size = declared_size(g_, plan_->outputs.size() - 1, d, element.dims.size());
            size >= 0)
          element.dims[d] = size;
    }
    plan_->num_slots = static_cast<int>(num_slots_);
    finish(num_captures);
    return plan_;
  }

private:
  int slot(ValueId v) {
    auto [it, fresh] = slots_.try_emplace(v, num_slots_);
    if (fresh) {
      ++num_slots_;
      if (g_.at(v).constant) plan_->constants.emplace_back(it->second, RuntimeValue(*g_.at(v).constant));
    }
    return it->second;
  }

  runtime::ValueEntry entry(ValueId v, int slot) const { return make_entry(g_, v, slot); }

  void add_segment(const StagePart& p) {
    ValueStep step;
    step.what = runtime::StageStep{p.stage};
    for (ValueId v : p.part.inputs) step.inputs.push_back(slot(v));
    for (ValueId v : p.part.outputs) step.outputs.push_back(slot(v));
    plan_->steps.push_back(std::move(step));
  }

  void add_node(const Node& node) {
    ValueStep step;
    step.where = describe(g_, node);
    for (ValueId v : node.inputs) step.inputs.push_back(v < 0 ? -1 : slot(v));
    for (ValueId v : node.outputs) step.outputs.push_back(v < 0 ? -1 : slot(v));
    try {
      step.what = make_value_step(g_, node, compiler_, [this](ValueId v) { return slot(v); });
    } catch (Error& e) {
      e.add_where(step.where);
      throw;
    }
    plan_->steps.push_back(std::move(step));
  }

  /// Who reads a slot last, and what may be moved out of it.
  void finish(size_t num_captures) {
    std::vector<char> kept(num_slots_, 0);
    for (const auto& [slot, value] : plan_->constants) kept[slot] = 1;
    for (size_t i = plan_->inputs.size() - num_captures; i < plan_->inputs.size(); ++i)
      if (plan_->inputs[i].slot >= 0) kept[plan_->inputs[i].slot] = 1;
    std::vector<int> outputs(num_slots_, 0);
    for (const auto& e : plan_->outputs) ++outputs[e.slot];
    for (auto& e : plan_->outputs) e.only_here = outputs[e.slot] == 1 && !kept[e.slot];
    std::vector<char> seen(num_slots_, 0);
    for (size_t s = plan_->steps.size(); s-- > 0;) {
      ValueStep& step = plan_->steps[s];
      std::map<int, int> reads;
      for (int slot : step.inputs)
        if (slot >= 0) ++reads[slot];
      std::set<int> captured;
      runtime::for_each_body(step, [&](const runtime::BodyCall& body) {
        captured.insert(body.captures.begin(), body.captures.end());
      });
      auto last = [&](int slot) { return !seen[slot] && !kept[slot] && !outputs[slot]; };
      for (int slot : step.inputs)
        step.last_use.push_back(slot >= 0 && last(slot) && reads[slot] == 1 && !captured.count(slot));
      for (const auto& [slot, count] : reads) captured.insert(slot);
      for (int slot : step.outputs) // made and never read
        if (slot >= 0) captured.insert(slot);
      for (int slot : captured) {
        if (last(slot)) step.release.push_back(slot);
        seen[slot] = 1;
      }
    }
  }

  Graph& g_;
  ValueCompiler& compiler_;
  std::shared_ptr<ValuePlan> plan_;
  std::map<ValueId, int> slots_;
  int num_slots_ = 0;
};

} // namespace

std::shared_ptr<const ValuePlan> ValueCompiler::compile(Graph& g, size_t num_captures, bool is_body) {
  struct Depth {
    int& depth;
    ~Depth() { --depth; }
  } depth{++depth_};
  TBX_MODEL(depth_ <= 64, "bodies are nested more than 64 deep");
  PartLowerer lowerer(g, *this, is_body);
  std::vector<StagePart> parts = lowerer.run();
  for (StagePart& part : parts)
    if (part.segment) {
      part.segment->build(recorder_);
      if (auto kept = recorder_ ? part.segment->take_kept() : nullptr)
        recorder_->plan.programs.push_back(std::move(*kept));
      part.stage = static_cast<int>(segments.size());
      segments.push_back(part.segment);
    }
  return StepMaker(g, *this).run(parts, lowerer.split().value_nodes(), num_captures);
}

std::shared_ptr<Segment> ValueCompiler::segment(const Graph& g, const std::vector<int>& nodes,
                                                const std::vector<ValueId>& inputs,
                                                const std::vector<ValueId>& outputs, bool simplify,
                                                std::vector<ValueId>& from) {
  Graph part = graph::extract(g, nodes, inputs, outputs, from);
  if (simplify)
    graph::run_graph_passes(part, sort_disabled(options_->disabled_passes).of_graph, pass_context(*options_));
  return std::make_shared<Segment>(std::move(part), options_);
}

runtime::BodyCall ValueCompiler::body(const Graph& outer, const std::shared_ptr<Graph>& graph,
                                      const std::function<int(ValueId)>& slot) {
  Graph g = *graph;
  runtime::BodyCall call;
  size_t captures = 0;
  for (const Graph::Capture& c : graph->captures) {
    if (c.outer < 0) continue;
    if (!g.at(c.inner).constant) g.at(c.inner).constant = outer.at(c.outer).constant;
    if (g.at(c.inner).constant) continue;
    g.inputs.push_back(c.inner);
    call.captures.push_back(slot(c.outer));
    ++captures;
  }
  g.captures.clear();
  g.origins = outer.origins;
  graph::run_graph_passes(g, sort_disabled(options_->disabled_passes).of_graph, pass_context(*options_));
  for (ValueId& v : g.outputs)
    while (only_names(g, v)) v = g.nodes[g.at(v).producer].inputs[0];
  call.plan = compile(g, captures, true);
  return call;
}

std::shared_ptr<const runtime::BoundValuePlan> ValueProgram::bind() const {
  return runtime::bind(plan, {segments.begin(), segments.end()});
}

void add_stats_of_segments(const ValueProgram& program, CompileStats& stats) {
  for (const auto& segment : program.segments)
    for (const auto& v : segment->specialiser().variants()) {
      stats.generated_kernels += v->stats.generated_kernels;
      stats.extern_kernels += v->stats.extern_kernels;
      stats.evaluated_kernels += v->stats.evaluated_kernels;
      stats.device_steps += v->stats.device_steps;
      stats.copies += v->stats.copies;
      stats.compiled_units += v->stats.compiled_units;
      stats.cached_units += v->stats.cached_units;
      stats.lower_ms += v->stats.lower_ms;
      stats.schedule_ms += v->stats.schedule_ms;
      stats.build_ms += v->stats.build_ms;
      if (stats.not_compiled.empty()) stats.not_compiled = v->stats.not_compiled;
    }
}

ValueProgram compile_values(Graph graph, const CompileOptions& options, CompileStats stats,
                            PlanRecorder* recorder) {
  auto start = std::chrono::steady_clock::now();
  ValueCompiler compiler(std::make_shared<const CompileOptions>(options), recorder);
  ValueProgram program;
  program.plan = compiler.compile(graph, 0, false);
  program.segments = std::move(compiler.segments);
  std::vector<runtime::StageParts> stages;
  for (const auto& segment : program.segments) {
    const Graph& part = segment->graph();
    runtime::StageParts& stage =
        stages.emplace_back(runtime::StageParts{part.inputs.size(), part.outputs.size(), {}});
    for (const auto& v : segment->specialiser().variants())
      stage.executables.push_back(v->bound->executable.get());
  }
  runtime::verify({std::move(stages), program.plan.get()});
  if (recorder) recorder->record(*program.plan);
  add_stats_of_segments(program, stats);
  stats.total_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  program.stats = std::move(stats);
  return program;
}

} // namespace tbx::driver
