// KernelProgram -> C++ function named by the hash of its own text.
#include <fmt/format.h>
#include <xxhash.h>

#include "base/error.h"
#include "codegen/emit.h"
#include "codegen/loops.h"

namespace tbx::codegen {

EmittedKernel emit_cpp(const ir::KernelProgram& kernel, const Target& target) {
  EmittedKernel out = LoopEmitter(kernel, target).emit();
  out.function = fmt::format("k_{:016x}", XXH3_64bits(out.text.data(), out.text.size()));
  out.text = fmt::format("extern \"C\" i64 {}(void* const* buffers, const i64* sizes, i64 begin, i64 end, "
                         "void* scratch) {{\n{}}}\n",
                         out.function, out.text);
  return out;
}

} // namespace tbx::codegen
