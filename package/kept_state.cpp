#include "package/kept_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/memory.h"
#include "runtime/growing.h"
#include "runtime/run_checks.h"

namespace tbx::package {
namespace {

int64_t product_of(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

} // namespace

std::unique_ptr<KeptState> KeptState::of(const runtime::Executable& plan,
                                         std::shared_ptr<device::Device> device, int64_t max_memory) {
  if (const int64_t bytes = runtime::state_bytes(plan); max_memory > 0 && bytes > max_memory)
    throw Error(ErrorKind::model,
                fmt::format("the state takes {} bytes of memory, the limit is {} (option max_memory)", bytes,
                            max_memory),
                "a smaller state_capacity needs less");
  auto state = std::make_unique<KeptState>();
  state->device_ = std::move(device);
  for (const runtime::SignatureEntry& in : plan.inputs) {
    if (in.state_axis < 0) continue;
    Entry e;
    e.name = in.name, e.dtype = in.dtype, e.axis = in.state_axis;
    for (const runtime::SizeExpr& size : plan.buffers[in.buffer].sizes) e.room.push_back(size.evaluate({}));
    const auto bytes = static_cast<size_t>(checked_numel(e.room) * size_of(e.dtype));
    if (state->device_)
      e.on_device = state->device_->allocate(bytes);
    else
      e.on_host = allocate_aligned(static_cast<int64_t>(bytes));
    state->entries_.push_back(std::move(e));
  }
  return state->entries_.empty() ? nullptr : std::move(state);
}

void KeptState::append_to(std::vector<runtime::RunTensor>& inputs) const {
  for (const Entry& e : entries_) {
    runtime::RunTensor t;
    t.data = e.data();
    t.dtype = e.dtype;
    t.dims = e.room;
    t.dims[e.axis] = e.length;
    t.on_device = device_ != nullptr;
    inputs.push_back(std::move(t));
  }
}

void KeptState::grow(const runtime::Executable& plan, std::span<const runtime::RunTensor> inputs) {
  std::vector<int64_t> symbols;
  runtime::bind_symbols(plan, inputs, symbols);
  const size_t first = plan.inputs.size() - entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i)
    entries_[i].length = plan.inputs[first + i].state_after.evaluate(symbols);
}

void KeptState::fill(Entry& e, const TensorView& view, device::Stream* stream) const {
  const auto axis = static_cast<size_t>(e.axis);
  std::vector<int64_t> want = e.room;
  if (view.dims.size() == want.size()) want[axis] = view.dims[axis];
  TBX_MODEL(static_cast<DType>(view.type) == e.dtype && view.dims == want && want[axis] >= 0,
            "state '{}' is {}[{}], and has room for {}[{}]", e.name, name_of(static_cast<DType>(view.type)),
            fmt::join(view.dims, ", "), name_of(e.dtype), fmt::join(e.room, ", "));
  TBX_MODEL(want[axis] <= e.room[axis],
            "state '{}' has a length of {}, and room for {} (option state_capacity)", e.name, want[axis],
            e.room[axis]);
  TBX_MODEL(view.device == kHost || (device_ && view.device == device_->properties().number),
            "state '{}' is in memory of cuda:{}, where the session does not run", e.name, view.device);
  const std::span<const int64_t> room(e.room);
  const int64_t rows = product_of(room.first(axis)),
                element = product_of(room.subspan(axis + 1)) * size_of(e.dtype);
  const auto bytes = static_cast<size_t>(want[axis] * element);
  const auto* from = static_cast<const std::byte*>(view.data);
  for (int64_t row = 0; bytes > 0 && row < rows; ++row, from += bytes) {
    std::byte* to = e.data() + row * e.room[axis] * element;
    if (!stream)
      std::memcpy(to, from, bytes);
    else if (view.device == kHost)
      stream->upload(to, from, bytes);
    else
      stream->copy(to, from, bytes);
  }
  e.length = want[axis];
}

void KeptState::set(const Session::Inputs& given) {
  if (given.empty()) {
    for (Entry& e : entries_) e.length = 0;
    return;
  }
  std::vector<const TensorView*> views(entries_.size(), nullptr);
  for (const auto& [name, view] : given) {
    const auto it = std::ranges::find(entries_, name, &Entry::name);
    TBX_MODEL(it != entries_.end(), "'{}' is no state of the session", name);
    views[static_cast<size_t>(it - entries_.begin())] = &view;
  }
  for (size_t i = 0; i < views.size(); ++i) {
    TBX_MODEL(views[i], "the state '{}' is missing: all are given, or none", entries_[i].name);
    const auto axis = static_cast<size_t>(entries_[i].axis), first = static_cast<size_t>(entries_[0].axis);
    TBX_MODEL(axis >= views[i]->dims.size() || first >= views[0]->dims.size() ||
                  views[i]->dims[axis] == views[0]->dims[first],
              "the states '{}' and '{}' have different lengths", entries_[0].name, entries_[i].name);
  }
  const std::unique_ptr<device::Stream> stream = device_ ? device_->make_stream() : nullptr;
  for (size_t i = 0; i < views.size(); ++i) fill(entries_[i], *views[i], stream.get());
  if (stream) stream->synchronize();
}

} // namespace tbx::package
