#include "package/kept_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/memory.h"
#include "runtime/run_checks.h"
#include "runtime/state_room.h"

namespace tbx::package {
namespace {

constexpr int64_t kFirstRoom = 256; ///< of a state that nobody gave a capacity
constexpr const char* kEmpty = "set_state with nothing empties it";

int64_t product_of(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

} // namespace

int64_t KeptState::Entry::bytes_with(int64_t room) const {
  int64_t bytes = size_of(dtype);
  for (size_t d = 0; d < sizes.size(); ++d)
    if (__builtin_mul_overflow(bytes, static_cast<int>(d) == axis ? room : sizes[d], &bytes))
      return INT64_MAX;
  return bytes;
}

std::unique_ptr<KeptState> KeptState::of(const runtime::Executable& plan,
                                         std::shared_ptr<device::Device> device, int64_t max_memory) {
  auto state = std::make_unique<KeptState>();
  state->device_ = std::move(device);
  state->max_memory_ = max_memory;
  int64_t bytes = 0;
  for (const runtime::SignatureEntry& in : plan.inputs) {
    if (in.state_axis < 0) continue;
    Entry e;
    e.name = in.name, e.dtype = in.dtype, e.axis = in.state_axis;
    e.grows = runtime::grows(plan, in), e.limit = in.state_limit;
    e.sizes = runtime::sizes_with_room(plan, in, in.state_room);
    bytes = saturated_sum(bytes, e.bytes_with(in.state_room));
    state->entries_.push_back(std::move(e));
  }
  if (max_memory > 0 && bytes > max_memory)
    throw Error(ErrorKind::model,
                fmt::format("the state takes {} bytes of memory, the limit is {} (option max_memory)", bytes,
                            max_memory),
                "a smaller state_capacity needs less");
  for (Entry& e : state->entries_) state->allocate(e, e.room());
  return state->entries_.empty() ? nullptr : std::move(state);
}

void KeptState::allocate(Entry& e, int64_t room) const {
  const int64_t bytes = std::max<int64_t>(1, e.bytes_with(room));
  if (device_)
    e.on_device = device_->allocate(static_cast<size_t>(bytes));
  else
    e.on_host = allocate_aligned(bytes);
  e.sizes[e.axis] = room;
}

void KeptState::put_into(runtime::RunTensor& t, const Entry& e) const {
  t.data = e.data();
  t.dtype = e.dtype;
  t.dims = e.sizes;
  t.dims[e.axis] = e.length;
  t.room = e.room();
  t.on_device = device_ != nullptr;
}

void KeptState::append_to(std::vector<runtime::RunTensor>& inputs) const {
  for (const Entry& e : entries_) put_into(inputs.emplace_back(), e);
}

bool KeptState::expect(const runtime::Executable& plan, std::vector<runtime::RunTensor>& inputs) {
  const size_t first = plan.inputs.size() - entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i) put_into(inputs[first + i], entries_[i]);
  runtime::bind_symbols(plan, inputs, symbols_);
  bool fits = true;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& e = entries_[i];
    e.expected = plan.inputs[first + i].state_after.evaluate(symbols_);
    // Kernels get an address: there is room for one, whatever a run appends.
    if (e.grows && std::max<int64_t>(1, e.expected) > e.room())
      inputs[first + i].room = std::max<int64_t>(1, e.expected), fits = false;
  }
  if (fits) return true;
  runtime::bind_symbols(plan, inputs, symbols_);
  runtime::check_inputs(plan, inputs, symbols_);
  for (const Entry& e : entries_) check_limit(e);
  return false;
}

void KeptState::check_limit(const Entry& e) const {
  if (!e.grows || e.limit == 0 || e.expected <= e.limit) return;
  throw Error(
      ErrorKind::model,
      fmt::format("the state '{}' has a length of {} and room for {}, and would need room for {}: its "
                  "limit is {} (option state_limit)",
                  e.name, e.length, e.room(), e.expected, e.limit),
      fmt::format("{}, or give a larger state_limit", kEmpty));
}

int64_t KeptState::room_for(const Entry& e, Spare spare) {
  const int64_t needed = std::max<int64_t>(1, e.expected);
  int64_t room = needed;
  if (!e.grows || needed <= e.room()) return e.room();
  if (needed > int64_t{1} << 48) return needed; // there is no such memory
  if (spare == Spare::twice)
    room = std::max({2 * e.room(), static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(needed))),
                     e.room() == 0 ? kFirstRoom : 0});
  else if (spare == Spare::eighth)
    room += needed / 8;
  return e.limit > 0 ? std::min(room, e.limit) : room;
}

/// Whether all states can be moved to memory with that room. They are moved one by one: only one of them is
/// in memory twice.
bool KeptState::fit(Spare spare, int64_t run_bytes) const {
  int64_t all = 0;
  for (const Entry& e : entries_) all = saturated_sum(all, e.bytes_with(e.room()));
  int64_t most = all;
  for (const Entry& e : entries_) {
    const int64_t room = room_for(e, spare), bytes = e.bytes_with(room);
    if (room == e.room()) continue;
    most = std::max(most, saturated_sum(all, bytes));
    all = saturated_sum(all - e.bytes_with(e.room()), bytes);
  }
  if (!device_ && most > memory_limit()) return false;
  return max_memory_ == 0 || std::max(most, saturated_sum(all, run_bytes)) <= max_memory_;
}

void KeptState::throw_no_memory(int64_t run_bytes) const {
  int64_t all = 0;
  const Entry* longest = nullptr;
  for (const Entry& e : entries_) {
    all = saturated_sum(all, e.bytes_with(room_for(e, Spare::none)));
    if (room_for(e, Spare::none) > e.room() && (!longest || e.expected > longest->expected)) longest = &e;
  }
  TBX_INTERNAL(longest != nullptr);
  const bool limited = max_memory_ > 0 && max_memory_ < memory_limit();
  throw Error(
      ErrorKind::model,
      fmt::format("the state '{}' has a length of {} and room for {}, and would need room for {}: all "
                  "states would take {} bytes of memory, one of them twice while it is moved, and the "
                  "run {} besides; {}",
                  longest->name, longest->length, longest->room(), longest->expected, all, run_bytes,
                  limited ? fmt::format("the limit is {} (option max_memory)", max_memory_)
                          : fmt::format("the machine has {}", memory_limit())),
      limited ? fmt::format("{}, or raise max_memory", kEmpty) : kEmpty);
}

/// `length` of what is at `from`, with room for `from_room`, to the beginning.
void KeptState::write(Entry& to, const std::byte* from, int64_t length, int64_t from_room, bool from_host,
                      device::Stream* stream) const {
  const std::span<const int64_t> sizes(to.sizes);
  const auto axis = static_cast<size_t>(to.axis);
  const int64_t rows = product_of(sizes.first(axis)),
                element = product_of(sizes.subspan(axis + 1)) * size_of(to.dtype);
  const auto bytes = static_cast<size_t>(length * element);
  std::byte* at = to.data();
  for (int64_t row = 0; bytes > 0 && row < rows; ++row) {
    if (!stream)
      std::memcpy(at, from, bytes);
    else if (from_host)
      stream->upload(at, from, bytes);
    else
      stream->copy(at, from, bytes);
    from += from_room * element, at += to.room() * element;
  }
}

void KeptState::move(Entry& e, int64_t room, device::Stream* stream) const {
  Entry moved = e;
  allocate(moved, room);
  write(moved, e.data(), e.length, e.room(), false, stream);
  if (stream) stream->synchronize();
  e = std::move(moved);
}

/// With as much to spare as there is memory for: states that grow by a token are moved seldom.
void KeptState::enlarge(int64_t run_bytes) {
  const std::unique_ptr<device::Stream> stream = device_ ? device_->make_stream() : nullptr;
  for (const Spare spare : {Spare::twice, Spare::eighth, Spare::none}) {
    const bool last = spare == Spare::none;
    if (!fit(spare, run_bytes)) {
      if (last) throw_no_memory(run_bytes);
      continue;
    }
    try { // what was moved has the same contents, and more room
      for (Entry& e : entries_)
        if (const int64_t room = room_for(e, spare); room != e.room()) move(e, room, stream.get());
      return;
    } catch (const Error& error) {
      if (last || error.kind() == ErrorKind::internal) throw;
    }
  }
}

void KeptState::make_room(std::vector<runtime::RunTensor>& inputs, int64_t run_bytes) {
  enlarge(run_bytes);
  const size_t first = inputs.size() - entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i) put_into(inputs[first + i], entries_[i]);
}

void KeptState::grow() {
  for (Entry& e : entries_) e.length = e.expected;
}

void KeptState::check_given(const Entry& e, const TensorView& view) const {
  const auto axis = static_cast<size_t>(e.axis);
  std::vector<int64_t> want = e.sizes;
  if (view.dims.size() == want.size()) want[axis] = view.dims[axis];
  TBX_MODEL(static_cast<DType>(view.type) == e.dtype && view.dims == want && want[axis] >= 0,
            "state '{}' is {}[{}], and has room for {}[{}]", e.name, name_of(static_cast<DType>(view.type)),
            fmt::join(view.dims, ", "), name_of(e.dtype), fmt::join(e.sizes, ", "));
  TBX_MODEL(e.grows || want[axis] <= e.room(),
            "state '{}' has a length of {}, and room for {} (option state_capacity)", e.name, want[axis],
            e.room());
  TBX_MODEL(view.device == kHost || (device_ && view.device == device_->properties().number),
            "state '{}' is in memory of cuda:{}, where the session does not run", e.name, view.device);
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
  for (size_t i = 0; i < views.size(); ++i) {
    check_given(entries_[i], *views[i]);
    entries_[i].expected = views[i]->dims[static_cast<size_t>(entries_[i].axis)];
    check_limit(entries_[i]);
  }
  enlarge(0);
  const std::unique_ptr<device::Stream> stream = device_ ? device_->make_stream() : nullptr;
  for (size_t i = 0; i < views.size(); ++i)
    write(entries_[i], static_cast<const std::byte*>(views[i]->data), entries_[i].expected,
          entries_[i].expected, views[i]->device == kHost, stream.get());
  if (stream) stream->synchronize();
  grow();
}

} // namespace tbx::package
