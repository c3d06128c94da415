#include "runtime/state_room.h"

#include "base/error.h"

namespace tbx::runtime {

std::vector<int64_t> sizes_with_room(const Executable& plan, const SignatureEntry& state, int64_t room) {
  std::vector<int64_t> sizes;
  const SizeExprs& of_buffer = plan.buffers[state.buffer].sizes;
  for (size_t d = 0; d < of_buffer.size(); ++d)
    sizes.push_back(static_cast<int>(d) == state.state_axis ? room : of_buffer[d].evaluate({}));
  return sizes;
}

bool grows(const Executable& plan, const SignatureEntry& state) {
  return state.state_axis >= 0 && !plan.buffers[state.buffer].sizes[state.state_axis].is_constant();
}

int64_t state_bytes(const Executable& plan, std::span<const int64_t> symbols) {
  int64_t all = 0;
  for (const SignatureEntry& in : plan.inputs) {
    if (in.state_axis < 0) continue;
    int64_t bytes = size_of(in.dtype);
    bool fits = true;
    for (const SizeExpr& size : plan.buffers[in.buffer].sizes)
      fits = fits && !__builtin_mul_overflow(bytes, size.evaluate(symbols), &bytes);
    TBX_MODEL(fits && !__builtin_add_overflow(all, bytes, &all),
              "the states take more memory than any machine has");
  }
  return all;
}

} // namespace tbx::runtime
