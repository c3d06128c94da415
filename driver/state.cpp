#include "driver/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "driver/make_plan.h"
#include "graph/kept_past.h"
#include "lowering/op_registry.h"

namespace tbx::driver {
namespace {

/// What "*" stands for where `pattern` is `name`; none: it is not.
std::optional<std::string> matched(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string_view head(pattern.data(), star),
      tail(pattern.data() + star + 1, pattern.size() - star - 1);
  if (name.size() < head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail))
    return std::nullopt;
  return name.substr(head.size(), name.size() - head.size() - tail.size());
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// Names of inputs and outputs, in the order of the graph's inputs.
Pairs pairs_of(const Graph& graph, const CompileOptions& options) {
  Pairs pairs;
  for (const auto& [input, output] : options.state) {
    const auto stars = [](const std::string& s) { return std::count(s.begin(), s.end(), '*'); };
    TBX_MODEL(stars(input) == stars(output) && stars(input) <= 1,
              "option state is '{}' = '{}': a * stands on both sides, or on none", input, output);
  }
  std::vector<bool> used(options.state.size(), false);
  for (ValueId id : graph.inputs) {
    size_t number = 0;
    for (const auto& [input, output] : options.state) {
      const size_t which = number++;
      const auto text = matched(input, graph.at(id).name);
      if (!text) continue;
      used[which] = true;
      std::string other = output;
      if (const size_t star = other.find('*'); star != std::string::npos) other.replace(star, 1, *text);
      TBX_MODEL(pairs.empty() || pairs.back().first != graph.at(id).name,
                "option state has several outputs for the input '{}'", graph.at(id).name);
      pairs.emplace_back(graph.at(id).name, std::move(other));
    }
  }
  size_t number = 0;
  for (const auto& [input, output] : options.state)
    TBX_MODEL(used[number++], "option state names the input '{}', which the model has not", input);
  return pairs;
}

/// Where a cache may be written is told by elements of another input: the node appends to it where it is the
/// session's.
void mark_kept_past(Graph& graph, const Pairs& pairs) {
  auto is_state = [&](ValueId id) {
    return id >= 0 && std::count(graph.inputs.begin(), graph.inputs.end(), id) > 0 &&
           std::any_of(pairs.begin(), pairs.end(),
                       [&](const auto& p) { return p.first == graph.at(id).name; });
  };
  for (Node& node : graph.nodes)
    if (const int past = lowering::Registry::instance().past_of(node);
        past >= 0 && is_state(node.input(past)) && is_state(node.input(past + 1)))
      node.attributes[kKeptPast] = int64_t{1};
}

/// A capacity without a limit stays what it is.
fusion::StateCapacity capacity_of(const CompileOptions& options) {
  return {options.state_capacity, options.state_limit > 0 ? options.state_limit : options.state_capacity};
}

} // namespace

void put_state_last(Graph& graph, const CompileOptions& options) {
  TBX_MODEL(options.state_capacity >= 0 && options.state_limit >= 0,
            "options state_capacity and state_limit are {} and {}: neither is negative",
            options.state_capacity, options.state_limit);
  if (options.state.empty()) {
    TBX_MODEL(options.state_capacity == 0 && options.state_limit == 0,
              "option {} is given without the option state, which it is of",
              options.state_capacity > 0 ? "state_capacity" : "state_limit");
    return;
  }
  TBX_MODEL(options.state_limit == 0 || options.state_capacity <= options.state_limit,
            "option state_capacity is {}, which is more than the option state_limit, {}",
            options.state_capacity, options.state_limit);
  const Pairs pairs = pairs_of(graph, options);
  mark_kept_past(graph, pairs);
  auto last = [&](std::vector<ValueId>& ids, auto name_of_pair) {
    std::stable_partition(ids.begin(), ids.end(), [&](ValueId id) {
      return std::none_of(pairs.begin(), pairs.end(),
                          [&](const auto& p) { return p.*name_of_pair == graph.at(id).name; });
    });
  };
  last(graph.inputs, &std::pair<std::string, std::string>::first);
  last(graph.outputs, &std::pair<std::string, std::string>::second);
}

std::vector<fusion::StateInput> keep_state(ir::Program& program, const Graph& graph,
                                           const CompileOptions& options) {
  std::vector<fusion::StateInput> state;
  for (const auto& [input, output] : pairs_of(graph, options))
    state.push_back(fusion::keep_in_place(program, input, output, capacity_of(options)));
  return state;
}

void show_state(runtime::Executable& plan, const std::vector<fusion::StateInput>& state) {
  for (const fusion::StateInput& s : state) {
    const auto i = static_cast<size_t>(std::find_if(plan.inputs.begin(), plan.inputs.end(),
                                                    [&](const auto& e) { return e.name == s.input; }) -
                                       plan.inputs.begin());
    TBX_INTERNAL(i < plan.inputs.size());
    runtime::SignatureEntry& entry = plan.inputs[i];
    entry.state_axis = s.axis;
    entry.state_after = size_expr(s.after);
    entry.state_room = s.capacity.first;
    entry.state_limit = s.capacity.most;
    if (!s.room.is_constant())
      for (runtime::SymbolBinding& b : plan.bindings)
        if (b.symbol == s.room.node()->number) b.of = runtime::SymbolBinding::Of::room;
    for (size_t d = 0; d < s.used.size(); ++d) {
      entry.sizes[d] = size_expr(s.used[d]);
      entry.dims[d] = ir::to_string(s.used[d]);
      if (!s.used[d].is_constant() && s.used[d].node()->kind == ir::SymKind::symbol)
        plan.bindings.push_back({s.used[d].node()->number, static_cast<int>(i), static_cast<int>(d)});
    }
    const bool on_device = std::any_of(plan.steps.begin(), plan.steps.end(), [](const runtime::Step& step) {
      return step.device != runtime::DeviceKind::cpu;
    });
    for (const runtime::Step& step : plan.steps)
      runtime::for_each_buffer(step, [&](int b, bool) {
        if (b != entry.buffer || !on_device || std::holds_alternative<runtime::CopyStep>(step.what)) return;
        Error e(ErrorKind::unsupported, fmt::format("the host works on the state '{}' of a GPU", s.input),
                "leave it out of the option state, or run the model on the CPU");
        e.set_where(runtime::nodes_of(plan, step.origins));
        throw e;
      });
  }
}

} // namespace tbx::driver
