// What makes a value plan sound. A plan may come from a file: nothing is taken for granted here.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/defect.h"

namespace tbx::runtime {
namespace {

constexpr int kMostSlots = 1 << 24;

/// One plan, and those of its bodies where its steps have them.
class Verifier {
public:
  Verifier(const ValuePlan& plan, std::span<const StageParts> stages) : plan_(plan), stages_(stages) {}

  void run() {
    require(plan_.num_slots >= 0 && plan_.num_slots < kMostSlots, "it has {} slots", plan_.num_slots);
    holds_.assign(static_cast<size_t>(plan_.num_slots), false);
    constant_ = holds_;
    for (const ValueEntry& e : plan_.inputs) {
      require(e.slot == -1 || is_slot(e.slot), "input '{}' is slot {}", e.name, e.slot);
      check_element(e);
      if (e.slot >= 0) holds_[at(e.slot)] = true;
    }
    for (const auto& [slot, value] : plan_.constants) {
      require(is_slot(slot), "a constant is slot {}", slot);
      holds_[at(slot)] = constant_[at(slot)] = true;
    }
    for (const ValueStep& step : plan_.steps) check_step(step);
    check_outputs();
  }

private:
  static size_t at(int slot) { return static_cast<size_t>(slot); }
  bool is_slot(int slot) const { return slot >= 0 && slot < plan_.num_slots; }

  void check_element(const ValueEntry& e) const {
    require(e.element.same.size() <= e.element.dims.size(), "the element of '{}' has {} sizes of {}", e.name,
            e.element.same.size(), e.element.dims.size());
    for (const auto& [input, dim] : e.element.same)
      require(input == -1 || (input >= 0 && at(input) < plan_.inputs.size()), "'{}' is as large as input {}",
              e.name, input);
  }

  /// Readers leave the value where it is, or move it out of the slot, which then holds nothing.
  void check_step(const ValueStep& step) {
    require(step.last_use.size() == step.inputs.size(), "{}: {} inputs, {} of them are used last", step.where,
            step.inputs.size(), step.last_use.size());
    for (int slot : step.inputs) check_read(step, slot);
    std::visit([&](const auto& what) { check(what, step); }, step.what);
    std::vector<int> readers = step.inputs;
    for_each_body(step, [&](const BodyCall& body) {
      readers.insert(readers.end(), body.captures.begin(), body.captures.end());
    });
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (!step.last_use[i]) continue;
      const int slot = step.inputs[i];
      require(slot >= 0 && !constant_[at(slot)] && std::count(readers.begin(), readers.end(), slot) == 1,
              "{}: moves slot {}, which is read elsewhere", step.where, slot);
      holds_[at(slot)] = false;
    }
    for (int slot : step.outputs) {
      require(slot == -1 || (is_slot(slot) && !constant_[at(slot)]), "{}: makes slot {}", step.where, slot);
      if (slot >= 0) holds_[at(slot)] = true;
    }
    for (int slot : step.release) {
      require(is_slot(slot) && !constant_[at(slot)], "{}: gives slot {} back", step.where, slot);
      holds_[at(slot)] = false;
    }
  }

  void check_read(const ValueStep& step, int slot) const {
    require(slot == -1 || (is_slot(slot) && holds_[at(slot)]), "{}: reads slot {}, which holds nothing",
            step.where, slot);
  }

  void check_outputs() const {
    for (const ValueEntry& e : plan_.outputs) {
      require(is_slot(e.slot) && holds_[at(e.slot)], "output '{}' is slot {}, which holds nothing", e.name,
              e.slot);
      check_element(e);
      auto same = [&](const ValueEntry& other) { return other.slot == e.slot; };
      require(!e.only_here || (!constant_[at(e.slot)] &&
                               std::count_if(plan_.outputs.begin(), plan_.outputs.end(), same) == 1),
              "output '{}' is moved, and there elsewhere, too", e.name);
    }
  }

  /// `explicit_inputs`: those that the step gives, in front of the captured ones; -1: any number.
  void check_body(const BodyCall& call, const ValueStep& step, int64_t explicit_inputs) const {
    require(call.plan != nullptr, "{}: a body is missing", step.where);
    const ValuePlan& body = *call.plan;
    require(call.captures.size() <= body.inputs.size() &&
                (explicit_inputs < 0 ||
                 body.inputs.size() - call.captures.size() == static_cast<size_t>(explicit_inputs)),
            "{}: a body has {} inputs, {} of them captured", step.where, body.inputs.size(),
            call.captures.size());
    Verifier(body, stages_).run();
    for (int slot : call.captures) {
      check_read(step, slot);
      require(slot >= 0, "{}: a body captures nothing", step.where);
    }
    // What is captured is put into the body once, and read in every iteration.
    for (size_t i = body.inputs.size() - call.captures.size(); i < body.inputs.size(); ++i) {
      const int kept = body.inputs[i].slot;
      if (kept < 0) continue;
      auto moves = [&](const ValueStep& s) {
        for (size_t k = 0; k < s.inputs.size(); ++k)
          if (s.inputs[k] == kept && s.last_use[k]) return true;
        return std::count(s.release.begin(), s.release.end(), kept) +
                   std::count(s.outputs.begin(), s.outputs.end(), kept) >
               0;
      };
      require(std::none_of(body.steps.begin(), body.steps.end(), moves) &&
                  std::none_of(body.outputs.begin(), body.outputs.end(),
                               [&](const ValueEntry& e) { return e.only_here && e.slot == kept; }),
              "{}: a body moves '{}', which it captures", step.where, body.inputs[i].name);
    }
  }

  void check(const StageStep& s, const ValueStep& step) const {
    require(s.stage >= 0 && at(s.stage) < stages_.size(), "a step runs part {} of {}", s.stage,
            stages_.size());
    require(step.inputs.size() == stages_[at(s.stage)].inputs &&
                step.outputs.size() == stages_[at(s.stage)].outputs,
            "a part has other inputs and outputs than the step that runs it");
    for (const auto* slots : {&step.inputs, &step.outputs})
      require(std::find(slots->begin(), slots->end(), -1) == slots->end(),
              "a part without one of its tensors");
  }

  static void check(const OpStep& s, const ValueStep& step) {
    require(find_value_op(s.node.domain, s.node.op, s.node.opset) != nullptr,
            "{}: there is no operator {} in this version", step.where, s.node.op);
    require(!step.outputs.empty() && s.node.wanted.size() == step.outputs.size() &&
                s.node.output_types.size() == step.outputs.size(),
            "{}: {} outputs, {} are known", step.where, step.outputs.size(), s.node.wanted.size());
  }

  void check(const IfStep& s, const ValueStep& step) const {
    require(step.inputs.size() == 1 && step.inputs[0] >= 0, "{}: the condition is missing", step.where);
    for (const BodyCall* branch : {&s.then_branch, &s.else_branch}) {
      if (branch->failure) continue;
      check_body(*branch, step, -1);
      require(branch->plan->outputs.size() >= step.outputs.size(), "{}: a branch has {} outputs", step.where,
              branch->plan->outputs.size());
    }
  }

  void check(const LoopStep& s, const ValueStep& step) const {
    require(s.carried >= 0 && s.carried < kMostSlots, "{}: {} values are carried", step.where, s.carried);
    check_body(s.body, step, 2 + int64_t{s.carried});
    require(step.inputs.size() <= 2 + at(s.carried) && s.body.plan->outputs.size() > at(s.carried) &&
                step.outputs.size() < s.body.plan->outputs.size(),
            "{}: {} inputs and {} outputs, {} values are carried, the body has {} outputs", step.where,
            step.inputs.size(), step.outputs.size(), s.carried, s.body.plan->outputs.size());
    for (const auto* dims : {&s.iteration_dims, &s.condition_dims})
      require(std::all_of(dims->begin(), dims->end(), [](int64_t d) { return d == 1; }),
              "{}: the number of the iteration or the condition is more than one element", step.where);
  }

  void check(const ScanStep& s, const ValueStep& step) const {
    const size_t first = s.batched ? 1 : 0;
    require(s.states >= 0 && step.inputs.size() > first + at(s.states), "{}: {} inputs, {} states",
            step.where, step.inputs.size(), s.states);
    const size_t values = step.inputs.size() - first, scanned = values - at(s.states);
    check_body(s.body, step, static_cast<int64_t>(values));
    const size_t made = s.body.plan->outputs.size();
    require(made >= at(s.states) && step.outputs.size() <= made, "{}: {} outputs, the body has {}",
            step.where, step.outputs.size(), made);
    require(s.input_axes.size() == scanned && s.input_backwards.size() == scanned &&
                s.output_axes.size() == made - at(s.states) &&
                s.output_backwards.size() == made - at(s.states),
            "{}: axes or directions do not fit {} scanned inputs", step.where, scanned);
  }

  void check(const SequenceMapStep& s, const ValueStep& step) const {
    require(!step.inputs.empty() &&
                std::find(step.inputs.begin(), step.inputs.end(), -1) == step.inputs.end(),
            "{}: an input is missing", step.where);
    check_body(s.body, step, static_cast<int64_t>(step.inputs.size()));
    require(s.body.plan->outputs.size() >= step.outputs.size(), "{}: {} outputs, the body has {}", step.where,
            step.outputs.size(), s.body.plan->outputs.size());
  }

  void check(const GenerationStep& s, const ValueStep& step) const {
    const Generation& g = s.what;
    require(g.ngram >= 0 && g.vocabulary >= 0 && g.least_kept >= 0, "{}: a count is below 0", step.where);
    check_body(s.decoder, step, -1);
    if (s.first.plan || g.family != Family::gpt) check_body(s.first, step, -1);
    try {
      check_bodies(s);
    } catch (const Error& e) {
      throw Defect{fmt::format("{}: {}", step.where, e.message())};
    }
  }

  const ValuePlan& plan_;
  const std::span<const StageParts> stages_;
  std::vector<bool> holds_;    ///< per slot: a value is there, after the steps so far
  std::vector<bool> constant_; ///< per slot: it is there in every run
};

} // namespace

void require_sound(const ValuePlan& plan, std::span<const StageParts> stages) {
  Verifier(plan, stages).run();
}

} // namespace tbx::runtime
