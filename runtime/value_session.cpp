#include "runtime/value_session.h"

#include <algorithm>
#include <mutex>
#include <string_view>

#include "base/budget.h"
#include "base/error.h"
#include "base/memory.h"
#include "runtime/value_frame.h"

namespace tbx::runtime {

ValueFrame::ValueFrame(const BoundValuePlan& bound)
    : bound(bound), plan(*bound.plan), slots(static_cast<size_t>(plan.num_slots)), bodies(plan.steps.size()) {
  for (const auto& [slot, value] : plan.constants) slots[slot] = value;
}

ValueFrame& ValueFrame::body(size_t step, size_t number) {
  auto& frame = bodies[step][number];
  if (!frame) frame = std::make_unique<ValueFrame>(*bound.steps[step].bodies[number].plan);
  return *frame;
}

Stop RunGuard::stop() const {
  return {.cancel = options.cancel,
          .limit_ms = options.time_limit_ms,
          .start = *options.started,
          .asked = options.asked};
}

int64_t RunGuard::memory() const { return options.max_memory > 0 ? options.max_memory : memory_limit(); }

void RunGuard::check_gathered(int64_t bytes) const {
  const int64_t limit = memory();
  if (bytes <= limit) return;
  throw Error(ErrorKind::model,
              fmt::format("the iterations gathered {} bytes, the limit is {}", bytes, limit),
              options.max_memory > 0 ? how_to_raise("max_memory") : "fewer iterations need less");
}

namespace {

void run_stage(const TensorStage& stage, const ValueStep& step, ValueFrame& frame, const RunGuard& guard) {
  frame.stage_inputs.resize(step.inputs.size());
  frame.stage_outputs.resize(step.outputs.size());
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const RuntimeValue& v = frame.slots[step.inputs[i]];
    TBX_MODEL(v.is_tensor(), "an operand is {}, not a tensor", name_of(v.kind));
    RunTensor& t = frame.stage_inputs[i];
    t.data = const_cast<std::byte*>(v.tensor.data);
    t.dtype = v.tensor.dtype;
    t.dims = v.tensor.dims;
  }
  for (RunTensor& t : frame.stage_outputs) {
    t.data = nullptr;
    t.owner = nullptr;
  }
  stage.run(frame.stage_inputs, frame.stage_outputs, guard.options);
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    RuntimeValue& v = frame.slots[step.outputs[i]];
    RunTensor& t = frame.stage_outputs[i];
    v.kind = RuntimeValue::Kind::tensor;
    v.elements = nullptr;
    v.map = nullptr;
    v.tensor.dtype = t.dtype;
    std::swap(v.tensor.dims, t.dims);
    v.tensor.data = static_cast<const std::byte*>(t.data);
    v.tensor.owner = std::move(t.owner);
    v.tensor.strings = nullptr;
  }
}

void run_op(const ValueFunction& function, const ValueStep& step, ValueFrame& frame, const RunGuard& guard) {
  frame.arguments.clear();
  for (size_t i = 0; i < step.inputs.size(); ++i)
    frame.arguments.push_back(
        {step.inputs[i] < 0 ? nullptr : &frame.slots[step.inputs[i]], step.last_use[i]});
  frame.results.assign(step.outputs.size(), RuntimeValue());
  const Stop stop = guard.stop();
  const StopScope scope(stop);
  function({frame.arguments, frame.results, guard.memory()});
  for (size_t i = 0; i < step.outputs.size(); ++i)
    if (step.outputs[i] >= 0) frame.slots[step.outputs[i]] = std::move(frame.results[i]);
}

} // namespace

void set_captures(const ValueFrame& outer, const BodyCall& call, ValueFrame& body) {
  size_t first = call.plan->inputs.size() - call.captures.size();
  for (size_t i = 0; i < call.captures.size(); ++i)
    if (int to = call.plan->inputs[first + i].slot; to >= 0) body.slots[to] = outer.slots[call.captures[i]];
}

void clear_inputs(ValueFrame& body) {
  for (const ValueEntry& e : body.plan.inputs)
    if (e.slot >= 0) body.slots[e.slot] = RuntimeValue();
}

RuntimeValue take_output(ValueFrame& frame, size_t i) {
  const ValueEntry& e = frame.plan.outputs[i];
  if (e.slot < 0) return {};

  return e.only_here ? std::move(frame.slots[e.slot]) : frame.slots[e.slot];
}

void run_frame(ValueFrame& frame, const RunGuard& guard) {
  for (size_t s = 0; s < frame.plan.steps.size(); ++s) {
    const ValueStep& step = frame.plan.steps[s];
    const BoundValueStep& bound = frame.bound.steps[s];
    try {
      // A stage looks at the time before each of its steps, and says at which it was up.
      if (!bound.stage) guard.check();
      if (bound.stage)
        run_stage(*bound.stage, step, frame, guard);
      else if (bound.function)
        run_op(bound.function, step, frame, guard);
      else if (const auto* branch = std::get_if<IfStep>(&step.what))
        run_if(*branch, step, s, frame, guard);
      else if (const auto* loop = std::get_if<LoopStep>(&step.what))
        run_loop(*loop, step, s, frame, guard);
      else if (const auto* scan = std::get_if<ScanStep>(&step.what))
        run_scan(*scan, step, s, frame, guard);
      else if (const auto* map = std::get_if<SequenceMapStep>(&step.what))
        run_sequence_map(*map, step, s, frame, guard);
      else
        run_generation(std::get<GenerationStep>(step.what), step, s, frame, guard);
    } catch (Error& e) {
      e.add_where(step.where);
      throw;
    }
    for (int slot : step.release) frame.slots[slot] = RuntimeValue();
  }
}

struct ValueSession::Impl {
  std::shared_ptr<const BoundValuePlan> bound;
  std::mutex mutex;
  std::vector<std::unique_ptr<ValueFrame>> idle;
};

ValueSession::ValueSession(std::shared_ptr<const BoundValuePlan> bound) : impl_(std::make_unique<Impl>()) {
  impl_->bound = std::move(bound);
}

ValueSession::~ValueSession() = default;
const ValuePlan& ValueSession::plan() const { return *impl_->bound->plan; }

void check_data(const std::string& name, const Tensor& t) {
  int64_t n = checked_numel(t.dims);
  if (t.dtype == DType::string)
    TBX_MODEL(t.strings && static_cast<int64_t>(t.strings->size()) == n,
              "input '{}' has {} strings for {} elements", name, t.strings ? t.strings->size() : 0, n);
  else
    TBX_MODEL(n == 0 || t.data, "input '{}' has no data", name);
}

namespace {

/// "float32" of "tensor(float32)"; empty when the text says something else.
std::string_view inside(std::string_view type, std::string_view what) {
  if (!type.starts_with(what) || type.size() < what.size() + 2) return {};
  return type.substr(what.size() + 1, type.size() - what.size() - 2);
}

/// `type`: "map(string, tensor(float32))".
void check_map(const std::string& name, const MapValue& map, std::string_view type) {
  const std::string given =
      fmt::format("map({}, tensor({}))", name_of(map.keys.dtype), name_of(map.values.dtype));
  TBX_MODEL(given == type || type.find(name_of(DType::undefined)) != std::string_view::npos,
            "input '{}' has a {}, expected {}", name, given, type);
  check_data(name, map.keys);
  check_data(name, map.values);
}

/// An element of a sequence, whose type is `type` as ValueEntry::type spells it.
void check_element(const std::string& name, const RuntimeValue& v, std::string_view type) {
  if (std::string_view element = inside(type, "optional"); !element.empty()) {
    if (!v.is_none()) check_element(name, v, element);
    return;
  }
  if (std::string_view element = inside(type, "sequence"); !element.empty()) {
    TBX_MODEL(v.is_sequence(), "input '{}': an element of the sequence is {}, expected {}", name,
              name_of(v.kind), type);
    for (const RuntimeValue& e : *v.elements) check_element(name, e, element);
    return;
  }
  if (!inside(type, "map").empty()) {
    TBX_MODEL(v.is_map(), "input '{}': an element of the sequence is {}, expected {}", name, name_of(v.kind),
              type);
    return check_map(name, *v.map, type);
  }
  std::string_view dtype = inside(type, "tensor");
  if (dtype.empty()) return;
  TBX_MODEL(v.is_tensor(), "input '{}': an element of the sequence is {}, expected {}", name, name_of(v.kind),
            type);
  TBX_MODEL(dtype == name_of(v.tensor.dtype) || dtype == name_of(DType::undefined),
            "input '{}': an element of the sequence has type {}, expected {}", name, name_of(v.tensor.dtype),
            dtype);
  check_data(name, v.tensor);
}

void check_input(const ValueEntry& e, const RuntimeValue& v) {
  if (v.is_none() && e.may_be_none) return;
  TBX_MODEL(v.kind == e.kind, "input '{}' is {}, expected {}", e.name, name_of(v.kind), e.type);
  if (v.is_sequence()) return check_element(e.name, v, e.type);
  if (v.is_map()) {
    const std::string_view of_optional = inside(e.type, "optional");
    return check_map(e.name, *v.map, of_optional.empty() ? e.type : of_optional);
  }
  if (!v.is_tensor()) return;
  TBX_MODEL(e.dtype == DType::undefined || v.tensor.dtype == e.dtype, "input '{}' has type {}, expected {}",
            e.name, name_of(v.tensor.dtype), name_of(e.dtype));
  check_data(e.name, v.tensor);
}

} // namespace

void ValueSession::run(std::vector<RuntimeValue> inputs, std::vector<RuntimeValue>& outputs,
                       const RunOptions& options) const {
  const ValuePlan& plan = *impl_->bound->plan;
  TBX_MODEL(inputs.size() == plan.inputs.size(), "{} inputs given, the model has {}", inputs.size(),
            plan.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) check_input(plan.inputs[i], inputs[i]);
  std::unique_ptr<ValueFrame> frame;
  {
    std::lock_guard lock(impl_->mutex);
    if (!impl_->idle.empty()) {
      frame = std::move(impl_->idle.back());
      impl_->idle.pop_back();
    }
  }
  if (!frame) frame = std::make_unique<ValueFrame>(*impl_->bound);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (plan.inputs[i].slot >= 0) frame->slots[plan.inputs[i].slot] = std::move(inputs[i]);
  RunOptions of_steps = options;
  of_steps.started = std::chrono::steady_clock::now();
  run_frame(*frame, RunGuard{of_steps});
  outputs.resize(plan.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = take_output(*frame, i);
  clear_inputs(*frame);
  for (const ValueEntry& e : plan.outputs)
    if (e.slot >= 0 && e.only_here) frame->slots[e.slot] = RuntimeValue();
  std::lock_guard lock(impl_->mutex);
  impl_->idle.push_back(std::move(frame));
}

} // namespace tbx::runtime
