// Steps with bodies: If, Loop, Scan, SequenceMap. A body is prepared once; an iteration costs moving its
// values.
#include <algorithm>

#include "base/error.h"
#include "runtime/value_frame.h"
#include "runtime/value_op.h"

namespace tbx::runtime {
namespace {

bool condition(const RuntimeValue& v, const char* what) {
  TBX_MODEL(v.is_tensor() && v.tensor.dtype == DType::boolean && v.tensor.numel() == 1,
            "the condition of {} is not one boolean", what);
  return v.tensor.as<uint8_t>()[0] != 0;
}

/// The values that one scan output had, stacked at the end.
class Stack {
public:
  void push(RuntimeValue v) {
    TBX_MODEL(v.is_tensor(), "a scan output is {}, not a tensor", name_of(v.kind));
    bytes_ += bytes_of_value(v);
    parts_.push_back(std::move(v.tensor));
  }
  int64_t bytes() const { return bytes_; }
  /// `dims`: of an element, where there was no iteration.
  Tensor finish(int64_t axis, bool backwards, DType dtype, std::vector<int64_t> dims) {
    if (parts_.empty()) {
      auto rank = static_cast<int64_t>(dims.size()) + 1;
      TBX_MODEL(axis >= -rank && axis < rank, "axis {} is out of range for rank {}", axis, rank);
      dims.insert(dims.begin() + (axis < 0 ? axis + rank : axis), 0);
      checked_numel(dims); // a branch that makes no sense for the shapes at hand may say anything
      if (dtype == DType::string) return Tensor::of_strings(std::move(dims), {});
      return Tensor::make(dtype == DType::undefined ? DType::f32 : dtype, std::move(dims));
    }
    std::vector<const Tensor*> list;
    for (const Tensor& t : parts_) list.push_back(&t);
    if (backwards) std::reverse(list.begin(), list.end());
    return concatenate(list, axis, /*new_axis=*/true);
  }

private:
  std::vector<Tensor> parts_;
  int64_t bytes_ = 0;
};

/// The sizes of an element that no iteration made, as far as they are those of an input of the body. `given`:
/// what is bound to the inputs; the captured ones are in the body's slots.
std::vector<int64_t> element_dims(const ElementType& type, const ValueFrame& body,
                                  std::span<const RuntimeValue* const> given) {
  std::vector<int64_t> dims = type.dims;
  for (size_t d = 0; d < type.same.size(); ++d) {
    auto [input, dim] = type.same[d];
    if (input < 0) continue;
    const int slot = body.plan.inputs[input].slot;
    const RuntimeValue* v = static_cast<size_t>(input) < given.size() ? given[input]
                            : slot >= 0                               ? &body.slots[slot]
                                                                      : nullptr;
    if (v && v->is_tensor() && static_cast<size_t>(dim) < v->tensor.dims.size())
      dims[d] = v->tensor.dims[dim];
  }
  return dims;
}

/// A value that outlives the frame's slots: outputs that are inputs or constants of a body are shared.
void set_output(ValueFrame& frame, const ValueStep& step, size_t i, RuntimeValue v) {
  if (step.outputs[i] >= 0) frame.slots[step.outputs[i]] = std::move(v);
}

/// Binds an input of a body, where the body uses it.
void give_input(ValueFrame& body, size_t input, RuntimeValue v) {
  if (const int slot = body.plan.inputs[input].slot; slot >= 0) body.slots[slot] = std::move(v);
}

int64_t wrapped_axis(int64_t axis, size_t rank) {
  auto r = static_cast<int64_t>(rank);
  TBX_MODEL(axis >= -r && axis < r, "axis {} is out of range for rank {}", axis, r);
  return axis < 0 ? axis + r : axis;
}

/// Element `i` along `axis`, without that dimension; along axis 0 a view.
Tensor slice_at(const Tensor& t, int64_t axis, int64_t i) {
  Tensor part;
  if (axis == 0 && t.dtype != DType::string) {
    part.dtype = t.dtype;
    part.dims.assign(t.dims.begin() + 1, t.dims.end());
    part.owner = t.owner;
    part.data = t.data + i * part.numel() * size_of(t.dtype);
    return part;
  }
  part = slice_of(t, axis, i, i + 1);
  part.dims.erase(part.dims.begin() + axis);
  return part;
}

} // namespace

void run_if(const IfStep& s, const ValueStep& step, size_t number, ValueFrame& frame, const RunGuard& guard) {
  const bool taken = condition(frame.slots[step.inputs[0]], "an If");
  const BodyCall& call = taken ? s.then_branch : s.else_branch;
  const size_t branch = taken ? 0 : 1;
  if (const auto& failure = frame.bound.steps[number].bodies[branch].failure) throw Error(*failure);
  ValueFrame& body = frame.body(number, branch);
  set_captures(frame, call, body);
  run_frame(body, guard);
  for (size_t i = 0; i < step.outputs.size(); ++i) set_output(frame, step, i, take_output(body, i));
  clear_inputs(body);
}

namespace {

int64_t trip_limit(const RuntimeValue* trips) {
  if (!trips) return INT64_MAX;
  TBX_MODEL(trips->is_tensor() && is_integer(trips->tensor.dtype) && trips->tensor.numel() == 1,
            "the trip count is not one integer");
  return element_as_int(trips->tensor, 0);
}

/// Binds the number of an iteration, and the condition that let it begin, as far as the body uses them.
void begin_iteration(const LoopStep& s, int64_t i, ValueFrame& body) {
  if (body.plan.inputs[0].slot >= 0) {
    Tensor iteration = Tensor::make(DType::i64, s.iteration_dims);
    iteration.as_mutable<int64_t>()[0] = i;
    give_input(body, 0, std::move(iteration));
  }
  if (body.plan.inputs[1].slot >= 0) {
    Tensor yes = Tensor::make(DType::boolean, s.condition_dims);
    yes.as_mutable<uint8_t>()[0] = 1;
    give_input(body, 1, std::move(yes));
  }
}

int64_t gathered_bytes(const std::vector<Stack>& stacks, const std::vector<RuntimeValue>& state) {
  int64_t bytes = 0;
  for (const Stack& stack : stacks) bytes += stack.bytes();
  for (const RuntimeValue& v : state) bytes += bytes_of_value(v);
  return bytes;
}

} // namespace

void run_loop(const LoopStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
              const RunGuard& guard) {
  auto given = [&](size_t i) -> RuntimeValue* {
    if (i >= step.inputs.size() || step.inputs[i] < 0) return nullptr;
    RuntimeValue* v = &frame.slots[step.inputs[i]];
    return v->is_none() ? nullptr : v;
  };
  const int64_t limit = trip_limit(given(0));
  bool go = !given(1) || condition(*given(1), "a Loop");
  const ValuePlan& plan = *s.body.plan;
  auto carried = static_cast<size_t>(s.carried);
  std::vector<RuntimeValue> state(carried);
  for (size_t i = 0; i < carried; ++i) {
    if (i + 2 >= step.inputs.size() || step.inputs[i + 2] < 0) continue;
    RuntimeValue& v = frame.slots[step.inputs[i + 2]];
    state[i] = step.last_use[i + 2] ? std::move(v) : v;
  }
  ValueFrame& body = frame.body(number);
  set_captures(frame, s.body, body);
  std::vector<Stack> stacks(plan.outputs.size() - 1 - carried);
  for (int64_t i = 0; go && i < limit; ++i) {
    begin_iteration(s, i, body);
    for (size_t k = 0; k < carried; ++k) give_input(body, 2 + k, std::move(state[k]));
    run_frame(body, guard);
    // The condition may be one of the values that the body passes on: read before those are moved.
    go = plan.outputs[0].slot < 0 || condition(body.slots[plan.outputs[0].slot], "a Loop");
    for (size_t k = 0; k < stacks.size(); ++k) stacks[k].push(take_output(body, 1 + carried + k));
    for (size_t k = 0; k < carried; ++k) state[k] = take_output(body, 1 + k);
    if (plan.steps.empty()) guard.check();
    // What is gathered at most doubles until the next look.
    if ((i & (i - 1)) == 0) guard.check_gathered(gathered_bytes(stacks, state));
  }
  std::vector<const RuntimeValue*> bound(2, nullptr);
  for (const RuntimeValue& v : state) bound.push_back(&v);
  for (size_t k = 0; k < stacks.size() && carried + k < step.outputs.size(); ++k) {
    if (step.outputs[carried + k] < 0) continue;
    const ElementType& type = plan.outputs[1 + carried + k].element;
    set_output(frame, step, carried + k,
               stacks[k].finish(0, false, type.dtype, element_dims(type, body, bound)));
  }
  for (size_t k = 0; k < carried && k < step.outputs.size(); ++k)
    set_output(frame, step, k, std::move(state[k]));
  clear_inputs(body);
}

namespace {

/// One run of a Scan over tensors without a batch dimension. `steps`: how many slices.
std::vector<RuntimeValue> scan_once(const ScanStep& s, std::vector<RuntimeValue> state,
                                    const std::vector<Tensor>& scanned, int64_t steps, ValueFrame& body,
                                    const RunGuard& guard) {
  const ValuePlan& plan = *s.body.plan;
  size_t states = state.size();
  std::vector<Stack> stacks(plan.outputs.size() - states);
  for (int64_t i = 0; i < steps; ++i) {
    for (size_t k = 0; k < states; ++k) give_input(body, k, std::move(state[k]));
    for (size_t k = 0; k < scanned.size(); ++k) {
      int64_t axis = wrapped_axis(s.input_axes[k], scanned[k].dims.size());
      int64_t n = scanned[k].dims[axis];
      give_input(body, states + k, slice_at(scanned[k], axis, s.input_backwards[k] ? n - 1 - i : i));
    }
    run_frame(body, guard);
    for (size_t k = 0; k < stacks.size(); ++k) stacks[k].push(take_output(body, states + k));
    for (size_t k = 0; k < states; ++k) state[k] = take_output(body, k);
    if (plan.steps.empty()) guard.check();
    if ((i & (i - 1)) == 0) guard.check_gathered(gathered_bytes(stacks, state));
  }
  std::vector<RuntimeValue> slices; // of which only the sizes are looked at
  for (size_t k = 0; k < scanned.size(); ++k) {
    Tensor slice;
    slice.dims = scanned[k].dims;
    slice.dims.erase(slice.dims.begin() + wrapped_axis(s.input_axes[k], slice.dims.size()));
    slices.emplace_back(std::move(slice));
  }
  std::vector<const RuntimeValue*> bound;
  for (const auto* values : {&state, &slices})
    for (const RuntimeValue& v : *values) bound.push_back(&v);
  std::vector<Tensor> stacked;
  for (size_t k = 0; k < stacks.size(); ++k) {
    const ElementType& type = plan.outputs[states + k].element;
    stacked.push_back(stacks[k].finish(s.output_axes[k], s.output_backwards[k], type.dtype,
                                       element_dims(type, body, bound)));
  }
  for (Tensor& t : stacked) state.emplace_back(std::move(t));
  return state;
}

/// The number of slices, the same for all scanned inputs.
int64_t slices_of(const ScanStep& s, const std::vector<Tensor>& scanned) {
  int64_t steps = -1;
  for (size_t k = 0; k < scanned.size(); ++k) {
    int64_t n = scanned[k].dims[wrapped_axis(s.input_axes[k], scanned[k].dims.size())];
    TBX_MODEL(steps < 0 || steps == n, "scanned inputs of {} and {} slices", steps, n);
    steps = n;
  }
  return steps;
}

/// `t` with zeros behind it along dimension 0, up to `length`.
Tensor padded(const Tensor& t, int64_t length) {
  if (t.dims.empty() || t.dims[0] >= length) return t;
  std::vector<int64_t> dims = t.dims;
  dims[0] = length - t.dims[0];
  Tensor zeros =
      t.dtype == DType::string
          ? Tensor::of_strings(dims, std::vector<std::string>(static_cast<size_t>(checked_numel(dims))))
          : Tensor::make(t.dtype, dims);
  return concatenate({&t, &zeros}, 0, false);
}

struct ScanInputs {
  std::vector<RuntimeValue> state;
  std::vector<Tensor> scanned;
};

ScanInputs inputs_of(const ScanStep& s, const ValueStep& step, const ValueFrame& frame) {
  const size_t first = s.batched ? 1 : 0, states = static_cast<size_t>(s.states);
  ScanInputs in;
  for (size_t i = first; i < step.inputs.size(); ++i) {
    TBX_MODEL(step.inputs[i] >= 0, "input {} is missing", i);
    const RuntimeValue& v = frame.slots[step.inputs[i]];
    if (i < first + states) {
      in.state.push_back(v);
    } else {
      TBX_MODEL(v.is_tensor(), "input {} is {}, not a tensor", i, name_of(v.kind));
      in.scanned.push_back(v.tensor);
    }
  }
  return in;
}

/// Of opset 8: how many elements share the batch dimension that all inputs have.
int64_t batch_of(const ScanInputs& in) {
  auto first_dim = [](const Tensor& t) {
    TBX_MODEL(!t.dims.empty(), "an input of a Scan of opset 8 has no batch dimension");
    return t.dims[0];
  };
  const int64_t batch = first_dim(in.scanned.at(0));
  for (const RuntimeValue& v : in.state)
    TBX_MODEL(v.is_tensor() && first_dim(v.tensor) == batch, "batches differ");
  for (const Tensor& t : in.scanned)
    TBX_MODEL(first_dim(t) == batch && t.dims.size() > 1,
              "scanned inputs need a batch and a sequence dimension");
  return batch;
}

/// By element of the batch; empty: all are as long as the inputs.
std::vector<int64_t> lengths_of(const ValueStep& step, const ValueFrame& frame, int64_t batch) {
  if (step.inputs[0] < 0 || frame.slots[step.inputs[0]].is_none()) return {};
  const RuntimeValue& given = frame.slots[step.inputs[0]];
  TBX_MODEL(given.is_tensor() && is_integer(given.tensor.dtype), "the lengths are no integers");
  std::vector<int64_t> lengths = to_ints(given.tensor);
  TBX_MODEL(static_cast<int64_t>(lengths.size()) == batch, "{} lengths for a batch of {}", lengths.size(),
            batch);
  return lengths;
}

/// Every element of the batch is a scan of its own; outputs are padded to the longest.
std::vector<RuntimeValue> scan_batch(const ScanStep& s, const ScanInputs& in,
                                     const std::vector<int64_t>& lengths, int64_t batch, ValueFrame& body,
                                     const RunGuard& guard) {
  TBX_MODEL(batch > 0, "a Scan over an empty batch");
  const int64_t longest = in.scanned[0].dims[1];
  std::vector<std::vector<Tensor>> results(s.body.plan->outputs.size());
  int64_t gathered = 0;
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<RuntimeValue> state;
    std::vector<Tensor> parts;
    state.reserve(in.state.size());
    parts.reserve(in.scanned.size());
    for (const RuntimeValue& v : in.state) state.emplace_back(slice_at(v.tensor, 0, b));
    for (const Tensor& t : in.scanned) parts.push_back(slice_at(t, 0, b));
    int64_t steps = slices_of(s, parts);
    if (!lengths.empty()) {
      TBX_MODEL(lengths[b] >= 0 && lengths[b] <= steps, "a length of {} for {} slices", lengths[b], steps);
      for (Tensor& t : parts) t = slice_of(t, 0, 0, lengths[b]);
      steps = lengths[b];
    }
    std::vector<RuntimeValue> out = scan_once(s, std::move(state), parts, steps, body, guard);
    for (size_t i = 0; i < results.size(); ++i) {
      TBX_MODEL(out[i].is_tensor(), "output {} is {}, not a tensor", i, name_of(out[i].kind));
      results[i].push_back(i < in.state.size() ? out[i].tensor : padded(out[i].tensor, longest));
      gathered += bytes_of_value(results[i].back());
    }
    guard.check_gathered(gathered);
  }
  std::vector<RuntimeValue> joined;
  for (const std::vector<Tensor>& parts : results) {
    std::vector<const Tensor*> list;
    list.reserve(parts.size());
    for (const Tensor& t : parts) list.push_back(&t);
    joined.emplace_back(concatenate(list, 0, true));
  }
  return joined;
}

} // namespace

void run_scan(const ScanStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
              const RunGuard& guard) {
  ScanInputs in = inputs_of(s, step, frame);
  ValueFrame& body = frame.body(number);
  set_captures(frame, s.body, body);
  std::vector<RuntimeValue> out;
  if (s.batched) {
    const int64_t batch = batch_of(in);
    out = scan_batch(s, in, lengths_of(step, frame, batch), batch, body, guard);
  } else {
    out = scan_once(s, std::move(in.state), in.scanned, slices_of(s, in.scanned), body, guard);
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) set_output(frame, step, i, std::move(out[i]));
  clear_inputs(body);
}

void run_sequence_map(const SequenceMapStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
                      const RunGuard& guard) {
  const ValuePlan& plan = *s.body.plan;
  const RuntimeValue& first = frame.slots[step.inputs.at(0)];
  TBX_MODEL(first.is_sequence(), "input 0 is {}, not a sequence", name_of(first.kind));
  size_t n = first.elements->size();
  for (int slot : step.inputs) {
    const RuntimeValue& v = frame.slots[slot];
    TBX_MODEL(!v.is_sequence() || v.elements->size() == n, "sequences of {} and {} elements", n,
              v.elements->size());
  }
  ValueFrame& body = frame.body(number);
  set_captures(frame, s.body, body);
  std::vector<std::vector<RuntimeValue>> results(plan.outputs.size());
  int64_t gathered = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < step.inputs.size(); ++k) {
      const RuntimeValue& v = frame.slots[step.inputs[k]];
      give_input(body, k, v.is_sequence() ? (*v.elements)[i] : v);
    }
    run_frame(body, guard);
    for (size_t k = 0; k < results.size(); ++k) {
      results[k].push_back(take_output(body, k));
      gathered += bytes_of_value(results[k].back());
    }
    guard.check_gathered(gathered);
    if (plan.steps.empty()) guard.check();
  }
  for (size_t k = 0; k < step.outputs.size(); ++k)
    set_output(frame, step, k, RuntimeValue::sequence(std::move(results[k])));
  clear_inputs(body);
}

} // namespace tbx::runtime
