// Scratch: memory for one call of a library or one task of a kernel, from a pool of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tbx::extern_kernels {

/// How much a primitive of a library needs depends on the primitive that runs, not on the sizes alone: who
/// executes it asks for its bytes, no plan made earlier does. A call owns its block alone, also where its
/// thread takes up other work while it waits for the rest of the arena.
class Scratch {
public:
  explicit Scratch(int64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(block_.get()); }

private:
  std::shared_ptr<void> block_;
  int64_t bytes_ = 0;
};

} // namespace tbx::extern_kernels
