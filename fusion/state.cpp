#include "fusion/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "fusion/carry_caches.h"

namespace tbx::fusion {

using namespace ir;

namespace {

template <class Entries>
BufferId buffer_named(const Entries& entries, const std::string& name, const char* what) {
  const auto it = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == name; });
  TBX_MODEL(it != entries.end(), "option state names the {} '{}', which the model has not", what, name);
  return it->buffer;
}

/// A symbol that no dimension of the model is called.
SymInt room_symbol(Program& program, const std::string& input) {
  std::string name = fmt::format("room({})", input);
  auto is_taken = [&](const SymNode* s) { return s->name == name; };
  while (std::ranges::any_of(program.context->symbols(), is_taken)) name += "'";
  return program.context->symbol(name);
}

} // namespace

StateInput keep_in_place(Program& program, const std::string& input, const std::string& output,
                         const StateCapacity& capacity) {
  const BufferId past = buffer_named(program.inputs, input, "input"),
                 present = buffer_named(program.outputs, output, "output");
  auto refuse = [&](const std::string& why) -> Error {
    return {ErrorKind::model, fmt::format("'{}' cannot be kept as the state '{}': {}", output, input, why),
            "leave it out of the option state"};
  };
  const SymInts before = program.at(past).sizes, after = program.at(present).sizes;
  if (before.size() != after.size() || program.at(past).dtype != program.at(present).dtype)
    throw refuse("they have different types or ranks");
  StateInput state{input, -1, before, 0, 0, capacity};
  for (size_t d = 0; d < before.size(); ++d) {
    if (provably_equal(before[d], after[d])) {
      if (!before[d].is_constant())
        throw Error(ErrorKind::model,
                    fmt::format("dimension {} of the state '{}' is {}, which is not known while compiling", d,
                                input, to_string(before[d])),
                    "fix it with the option dims (--dim)");
      continue;
    }
    if (state.axis >= 0) throw refuse("they differ in several dimensions");
    state.axis = static_cast<int>(d);
  }
  if (state.axis < 0) throw refuse("no dimension of it grows");
  if (has_unbacked(after[state.axis])) throw refuse("how much it grows depends on data");
  // What is stored into a copy goes there at once.
  BufferId whole = present;
  while (program.at(whole).overwrites >= 0) whole = program.at(whole).overwrites;
  auto is_copy = [&](const Operation& op) { return copies_to_start(program, op, past, whole); };
  if (is_half(program.at(past).dtype) && !program.target.cuda)
    throw Error(ErrorKind::unsupported,
                fmt::format("the state '{}' is {}, of which the CPU makes float32 copies in every run", input,
                            name_of(program.at(past).dtype)),
                "leave it out of the option state, or take a model with float32 caches");
  if (std::count_if(program.operations.begin(), program.operations.end(), is_copy) != 1)
    throw refuse("it is not the input with something appended");
  std::erase_if(program.operations, is_copy);
  state.after = after[state.axis];
  state.room = capacity.is_fixed() ? SymInt(capacity.first) : room_symbol(program, input);
  program.add_check(
      state.room - state.after, false,
      fmt::format("the state '{}' has room for {} (option state_capacity)", input, to_string(state.room)));
  program.at(past).sizes[state.axis] = state.room;
  program.at(whole).slice_of = past;
  program.at(whole).slice_start.assign(after.size(), SymInt(0));
  return state;
}

} // namespace tbx::fusion
