#include "driver/value_compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/error.h"
#include "base/stop.h"
#include "driver/passes.h"
#include "driver/target.h"
#include "driver/value_steps.h"
#include "graph/function_body.h"
#include "graph/partition/value_graph.h"
#include "lowering/lower.h"
#include "lowering/op_registry.h"
#include "runtime/generation/generation.h"

namespace tbx::driver {

using runtime::ValuePlan;
using runtime::ValueStep;

namespace {

/// Splits one graph: which nodes run on values, and which segment every other node belongs to.
class Splitter {
public:
  Splitter(Graph& g, ValueCompiler& compiler, bool is_body) : g_(g), compiler_(compiler), is_body_(is_body) {}

  /// Until every segment can be lowered.
  void run() {
    graph::number_strings(g_);
    on_values_.clear();
    mark_by_type();
    while (!try_segments()) {
    }
  }

  struct Part {
    std::vector<int> nodes;
    std::vector<ValueId> inputs, outputs;
    std::shared_ptr<Segment> segment;
    std::vector<ValueId> from; ///< value of the segment's graph -> value of this graph
  };
  /// By level: first the part, then the nodes on values.
  std::vector<Part> parts;
  std::vector<std::vector<int>> value_nodes;

private:
  static bool is_control(const Node& n) {
    return runtime::find_generation_op(n.domain, n.op_type) || has(lowering::Trait::runs_bodies, n);
  }
  static bool runs_on_values(const Node& n) {
    return is_control(n) || runtime::find_value_op(n.domain, n.op_type, n.opset);
  }

  /// Marks a node, or puts the body of its operator in its place. False when neither is possible.
  bool mark(int i) {
    if (runs_on_values(g_.nodes[i])) {
      on_values_[i] = 1;
      return true;
    }
    if (!inline_function(g_, static_cast<size_t>(i))) return false;
    graph::number_strings(g_);
    on_values_.clear();
    mark_by_type();
    return true;
  }

  void mark_by_type() {
    while (!try_mark_by_type()) graph::number_strings(g_);
  }

  /// False when the body of an operator was put in its place: then all is to be looked at again.
  bool try_mark_by_type() {
    on_values_.assign(g_.nodes.size(), 0);
    std::vector<char> live = live_nodes(g_);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& n = g_.nodes[i];
      if (!live[i]) continue;
      const bool of_values =
          n.domain == "tensorbox" && !lowering::Registry::instance().find(n.domain, n.op_type, n.opset);
      bool special = of_values || runtime::find_generation_op(n.domain, n.op_type) ||
                     (n.domain.empty() && n.op_type == "SequenceMap") ||
                     forced_.count(n.outputs.empty() ? -1 : first_output(n));
      for (ValueId v : graph::values_read(n)) special |= !graph::is_numeric(g_.at(v).type);
      for (ValueId v : n.outputs) special |= v >= 0 && !graph::is_numeric(g_.at(v).type);
      if (!special) continue;
      if (runs_on_values(n)) {
        on_values_[i] = 1;
      } else if (inline_function(g_, i)) {
        return false;
      } else {
        Error e(ErrorKind::unsupported,
                fmt::format("operator {}{} does not take values of these types: {}",
                            n.domain.empty() ? "" : n.domain + ".", n.op_type, types_of(n)),
                "`tbx ops` lists the supported operators");
        e.set_where(describe(g_, n));
        throw e;
      }
    }
    return true;
  }

  std::string types_of(const Node& n) const {
    std::vector<std::string> texts;
    for (ValueId v : n.inputs) texts.push_back(v < 0 ? "-" : type_text(g_.at(v).type));
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  static ValueId first_output(const Node& n) {
    for (ValueId v : n.outputs)
      if (v >= 0) return v;
    return -1;
  }

  void split() {
    std::vector<char> live = live_nodes(g_);
    std::vector<int> level_of(g_.values.size(), 0); ///< 2 * level, + 1 when made by a node on values
    std::vector<std::vector<int>> tensor_nodes;
    value_nodes.clear();
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!live[i]) continue;
      int at = 0;
      for (ValueId v : graph::values_read(g_.nodes[i])) at = std::max(at, level_of[v]);
      if (auto late = needed_.find(first_output(g_.nodes[i])); late != needed_.end())
        for (ValueId v : late->second) // in a segment behind the one that makes them
          at = std::max(at, g_.at(v).producer < 0 ? 0 : (level_of[v] | 1) + 1);
      if (on_values_[i])
        at |= 1;
      else
        at += at & 1;
      for (ValueId v : g_.nodes[i].outputs)
        if (v >= 0) level_of[v] = at;
      size_t level = static_cast<size_t>(at / 2);
      if (tensor_nodes.size() <= level) {
        tensor_nodes.resize(level + 1);
        value_nodes.resize(level + 1);
      }
      (on_values_[i] ? value_nodes : tensor_nodes)[level].push_back(static_cast<int>(i));
    }
    parts.clear();
    for (std::vector<int>& nodes : tensor_nodes) parts.push_back({std::move(nodes), {}, {}, nullptr, {}});
    set_borders();
  }

  void set_borders() {
    std::vector<int> made_in(g_.values.size(), -1); ///< part
    for (size_t p = 0; p < parts.size(); ++p)
      for (int i : parts[p].nodes)
        for (ValueId v : g_.nodes[i].outputs)
          if (v >= 0) made_in[v] = static_cast<int>(p);
    std::vector<std::set<ValueId>> inputs(parts.size()), outputs(parts.size());
    auto used = [&](ValueId v, int by) { // by: part, -1: nodes on values and the graph's outputs
      if (v < 0 || g_.at(v).constant || (by >= 0 && made_in[v] == by)) return;
      if (by >= 0) inputs[by].insert(v);
      if (made_in[v] >= 0) outputs[made_in[v]].insert(v);
    };
    for (size_t p = 0; p < parts.size(); ++p)
      for (int i : parts[p].nodes)
        for (ValueId v : graph::values_read(g_.nodes[i])) used(v, static_cast<int>(p));
    for (const auto& nodes : value_nodes)
      for (int i : nodes)
        for (ValueId v : graph::values_read(g_.nodes[i])) used(v, -1);
    for (ValueId v : g_.outputs) used(v, -1);
    for (size_t p = 0; p < parts.size(); ++p) {
      parts[p].inputs.assign(inputs[p].begin(), inputs[p].end());
      parts[p].outputs.assign(outputs[p].begin(), outputs[p].end());
    }
  }

  /// Lowers the segments, and compiles them when all can be lowered. False when one demanded another split.
  bool try_segments() {
    split();
    for (Part& part : parts) {
      if (part.outputs.empty()) continue;
      check_stop();
      part.segment = compiler_.segment(g_, part.nodes, part.inputs, part.outputs, is_body_, part.from);
      if (const auto demand = part.segment->lower(); demand && !part.segment->wait_for_runs(*demand)) {
        if (!meet(part, *demand)) throw Error(demand->reason);
        return false;
      }
      if (!part.segment->waits()) continue;
      // Compiled at the first run: what is control flow now must not depend on what is found out then.
      bool news = false;
      for (int i : part.nodes)
        if (is_control(g_.nodes[i])) {
          on_values_[i] = 1;
          remember(i);
          news = true;
        }
      if (news) return false;
    }
    for (Part& part : parts)
      if (part.segment) part.segment->build();
    return true;
  }

  /// Changes what the split is made from, so that the demand does not come again. False where nothing can.
  bool meet(const Part& part, const lowering::Demand& demand) {
    if (demand.kind == lowering::Demand::Kind::assumptions) return false;
    const int node = original(part, demand.node);
    if (demand.kind != lowering::Demand::Kind::split) return cut(part, node, demand.values);
    if (node < 0 || !mark(node)) return false;
    remember(node);
    return true;
  }

  void remember(int i) {
    if (i < static_cast<int>(g_.nodes.size()) && on_values_[i]) forced_.insert(first_output(g_.nodes[i]));
  }

  /// What a node must know while it is compiled is made from data: it goes into a later segment, which is
  /// compiled for the values of a run. False when it is there already.
  bool cut(const Part& part, int node, const std::vector<ValueId>& values) {
    if (node < 0) return false;
    std::set<ValueId>& needed = needed_[first_output(g_.nodes[node])];
    size_t before = needed.size();
    for (ValueId w : values)
      if (ValueId v = place(part, w); v >= 0 && g_.at(v).producer >= 0) needed.insert(v);
    return needed.size() > before;
  }

  static ValueId place(const Part& part, ValueId v) {
    return v >= 0 && v < static_cast<ValueId>(part.from.size()) ? part.from[v] : -1;
  }

  /// The node of this graph that makes what node `i` of the segment makes: passes may have changed the
  /// segment.
  int original(const Part& part, int i) const {
    if (i < 0) return -1;
    for (ValueId v : part.segment->graph().nodes[i].outputs)
      if (ValueId w = place(part, v); w >= 0) return g_.at(w).producer;
    return -1;
  }

  Graph& g_;
  ValueCompiler& compiler_;
  bool is_body_;
  std::vector<char> on_values_;
  std::map<ValueId, std::set<ValueId>> needed_; ///< first output of a node: what it must know
  std::set<ValueId> forced_;                    ///< first outputs of nodes that were marked after a failure
};

/// Steps of one graph over numbered slots.
class StepMaker {
public:
  StepMaker(Graph& g, ValueCompiler& compiler)
      : g_(g), compiler_(compiler), plan_(std::make_shared<ValuePlan>()) {}

  std::shared_ptr<const ValuePlan> run(const Splitter& split, size_t num_captures) {
    for (ValueId v : g_.inputs) plan_->inputs.push_back(entry(v, v < 0 || g_.at(v).constant ? -1 : slot(v)));
    for (size_t level = 0; level < split.parts.size(); ++level) {
      if (const auto& part = split.parts[level]; part.segment) add_segment(part);
      for (int i : split.value_nodes[level]) add_node(g_.nodes[i]);
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
    verify(*plan_);
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

  void add_segment(const Splitter::Part& part) {
    ValueStep step;
    step.what = runtime::StageStep{part.segment};
    for (ValueId v : part.inputs) step.inputs.push_back(slot(v));
    for (ValueId v : part.outputs) step.outputs.push_back(slot(v));
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
  Splitter splitter(g, *this, is_body);
  splitter.run();
  for (const auto& part : splitter.parts)
    if (part.segment) segments.push_back(part.segment);
  return StepMaker(g, *this).run(splitter, num_captures);
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
  // Nobody sees the names of a body's outputs: what only names one costs nothing.
  for (ValueId& v : g.outputs)
    while (g.at(v).producer >= 0 && !g.at(v).constant && g.nodes[g.at(v).producer].op_type == "Identity" &&
           g.nodes[g.at(v).producer].domain.empty())
      v = g.nodes[g.at(v).producer].inputs[0];
  call.plan = compile(g, captures, true);
  return call;
}

ValueProgram compile_values(Graph graph, const CompileOptions& options, CompileStats stats) {
  auto start = std::chrono::steady_clock::now();
  ValueCompiler compiler(std::make_shared<const CompileOptions>(options));
  ValueProgram program;
  program.plan = compiler.compile(graph, 0, false);
  program.segments = std::move(compiler.segments);
  for (const auto& segment : program.segments)
    for (const auto& v : segment->specialiser().variants()) {
      stats.generated_kernels += v->stats.generated_kernels;
      stats.extern_kernels += v->stats.extern_kernels;
      stats.compiled_units += v->stats.compiled_units;
      stats.cached_units += v->stats.cached_units;
      stats.lower_ms += v->stats.lower_ms;
      stats.schedule_ms += v->stats.schedule_ms;
      stats.build_ms += v->stats.build_ms;
    }
  stats.total_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  program.stats = std::move(stats);
  return program;
}

} // namespace tbx::driver
