// Owner: whose memory a buffer lives in.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::ir {

/// The buffer that owns the memory of `id`: follows slice_of and overwrites.
inline BufferId owner_of(const Program& program, BufferId id) {
  for (;;) {
    const Buffer& b = program.at(id);
    if (b.slice_of < 0 && b.overwrites < 0) return id;
    id = b.slice_of >= 0 ? b.slice_of : b.overwrites;
  }
}

} // namespace tbx::ir
