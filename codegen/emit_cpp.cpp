// KernelProgram -> C++ function named by the hash of its own text.
#include <fmt/format.h>
#include <xxhash.h>

#include <cstdlib>

#include "base/error.h"
#include "codegen/emit.h"
#include "codegen/loops.h"

namespace tbx::codegen {

const char* name_of(Isa isa) {
  switch (isa) {
  case Isa::sse: return "sse";
  case Isa::avx2: return "avx2";
  case Isa::avx512: return "avx512";
  }
  return "?";
}

static Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512cd");
  return v4 ? Isa::avx512 : v3 ? Isa::avx2 : Isa::sse;
#else
  return Isa::sse;
#endif
}

Isa host_isa() {
  static const Isa best = detect_isa();
  const char* wanted = std::getenv("TBX_ISA");
  if (!wanted || !*wanted) return best;
  for (Isa isa : {Isa::sse, Isa::avx2, Isa::avx512})
    if (wanted == std::string_view(name_of(isa))) {
      TBX_MODEL(isa <= best, "TBX_ISA={}: this CPU runs {} at most", wanted, name_of(best));
      return isa;
    }
  throw_model_error("TBX_ISA={}: expected sse, avx2 or avx512", wanted);
}

EmittedKernel emit_cpp(const ir::KernelProgram& kernel, Isa isa) {
  EmittedKernel out = LoopEmitter(kernel, isa).emit();
  out.function = fmt::format("k_{:016x}", XXH3_64bits(out.text.data(), out.text.size()));
  out.text = fmt::format("extern \"C\" i64 {}(void* const* buffers, const i64* sizes, i64 begin, i64 end, "
                         "void* scratch) {{\n{}}}\n",
                         out.function, out.text);
  return out;
}

} // namespace tbx::codegen
