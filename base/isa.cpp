#include "base/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>

#include "base/error.h"

namespace tbx {

const char* name_of(Isa isa) {
  switch (isa) {
  case Isa::sse: return "sse";
  case Isa::avx2: return "avx2";
  case Isa::avx512: return "avx512";
  }
  return "?";
}

#if defined(__x86_64__)
/// The bit itself: clang 14 does not know the name of this one.
static bool converts_halves() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi2") && converts_halves();
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512cd");
  return v4 ? Isa::avx512 : v3 ? Isa::avx2 : Isa::sse;
#else
  return Isa::sse;
#endif
}

std::optional<Isa> isa_of_name(std::string_view name) {
  for (Isa isa : {Isa::sse, Isa::avx2, Isa::avx512})
    if (name == name_of(isa)) return isa;
  return std::nullopt;
}

Isa cpu_isa() {
  static const Isa best = detect_isa();
  return best;
}

Isa host_isa() {
  const char* wanted = std::getenv("TBX_ISA");
  if (!wanted || !*wanted) return cpu_isa();
  const std::optional<Isa> isa = isa_of_name(wanted);
  TBX_MODEL(isa.has_value(), "TBX_ISA={}: expected sse, avx2 or avx512", wanted);
  TBX_MODEL(*isa <= cpu_isa(), "TBX_ISA={}: this CPU runs {} at most", wanted, name_of(cpu_isa()));
  return *isa;
}

} // namespace tbx
