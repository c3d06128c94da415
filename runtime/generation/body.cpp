#include "runtime/generation/body.h"

#include <fmt/ranges.h>

#include <tbb/parallel_for.h>

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/memory.h"

namespace tbx::runtime {

Body::Body(const BodyCall& call, bool first, ValueFrame& frame, size_t number)
    : frame_(frame.body(number, first ? 1 : 0)) {
  set_captures(frame, call, frame_);
}

std::vector<Tensor> Body::run(const std::vector<Tensor>& inputs, const RunGuard& guard) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (int slot = frame_.plan.inputs[i].slot; slot >= 0) frame_.slots[slot] = RuntimeValue(inputs[i]);
  guard.check();
  run_frame(frame_, guard);
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < frame_.plan.outputs.size(); ++i) {
    RuntimeValue v = take_output(frame_, i);
    TBX_MODEL(v.is_tensor(), "output {} of the body is {}, not a tensor", i, name_of(v.kind));
    outputs.push_back(std::move(v.tensor));
  }
  return outputs;
}

size_t num_inputs(const BodyCall& call) { return call.plan->inputs.size() - call.captures.size(); }

void check_names(const BodyCall& call, const char* what, size_t at, const std::vector<std::string>& names) {
  TBX_MODEL(num_inputs(call) >= at + names.size(), "the {} has {} inputs, expected at least {}", what,
            num_inputs(call), at + names.size());
  for (size_t i = 0; i < names.size(); ++i)
    TBX_MODEL(call.plan->inputs[at + i].name == names[i], "input {} of the {} is named '{}', expected '{}'",
              at + i, what, call.plan->inputs[at + i].name, names[i]);
  for (size_t i = 0; i < num_inputs(call); ++i) {
    const std::string& name = call.plan->inputs[i].name;
    if (name == "past_sequence_length" || name == "beam_width" || name == "cache_indirection")
      throw_unsupported(
          "input {} of the {}, '{}': bodies that keep past and present in the same memory are for GPUs; "
          "convert the model without past_present_share_buffer",
          i, what, name);
  }
}

void check_integers(const BodyCall& call, const char* what, size_t i) {
  const DType dtype = call.plan->inputs[i].dtype;
  TBX_MODEL(dtype == DType::i32, "input {} of the {} is of type {}, expected int32", i, what, name_of(dtype));
}

void check_floats(const BodyCall& call, const char* what, size_t i, size_t rank) {
  const ValueEntry& e = call.plan->outputs[i];
  const bool floats = e.dtype == DType::f32 || e.dtype == DType::f16 || e.dtype == DType::bf16;
  TBX_MODEL(e.kind == RuntimeValue::Kind::tensor && (floats || e.dtype == DType::undefined),
            "output {} of the {} is {}, expected floats", i, what, e.type);
  TBX_MODEL(!e.ranked || e.dims.size() == rank, "output {} of the {} has the shape [{}], expected rank {}", i,
            what, fmt::join(e.dims, ", "), rank);
}

Tensor take_rows(const Tensor& t, size_t axis, std::span<const int32_t> index, int64_t rows,
                 const std::string& name) {
  TBX_MODEL(axis < t.dims.size() && t.dims[axis] == rows,
            "{} has the shape [{}], expected {} along dimension {}", name, fmt::join(t.dims, ", "), rows,
            axis);
  bool same = static_cast<int64_t>(index.size()) == rows;
  for (size_t i = 0; same && i < index.size(); ++i) same = index[i] == static_cast<int32_t>(i);
  if (same) return t;
  std::vector<int64_t> dims = t.dims;
  dims[axis] = static_cast<int64_t>(index.size());
  const auto at = static_cast<std::ptrdiff_t>(axis);
  const int64_t outer = std::accumulate(dims.begin(), dims.begin() + at, int64_t{1}, std::multiplies<>());
  const int64_t bytes =
      std::accumulate(dims.begin() + at + 1, dims.end(), int64_t{size_of(t.dtype)}, std::multiplies<>());
  Tensor result;
  result.dtype = t.dtype;
  result.dims = std::move(dims);
  const auto count = static_cast<int64_t>(index.size());
  if (checked_numel(result.dims) == 0) return Tensor::make(t.dtype, std::move(result.dims));
  auto memory = allocate_aligned(result.bytes());
  auto* to = static_cast<std::byte*>(memory.get());
  tbb::parallel_for(int64_t{0}, outer * count, [&](int64_t k) {
    const std::byte* from = t.data + (k / count * rows + index[static_cast<size_t>(k % count)]) * bytes;
    std::memcpy(to + k * bytes, from, static_cast<size_t>(bytes));
  });
  result.data = to;
  result.owner = std::move(memory);
  return result;
}

Tensor integers(std::vector<int64_t> dims) { return Tensor::make(DType::i32, std::move(dims)); }

} // namespace tbx::runtime
