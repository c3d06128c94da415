// The prelude of generated code, embedded from codegen/prelude.
#include <fmt/format.h>

#include "codegen/emit.h"

namespace tbx::codegen {
namespace {

constexpr const char* kParts[] = {
#include "codegen/prelude/types.inc"
    ,
#include "codegen/prelude/memory.inc"
    ,
#include "codegen/prelude/arith.inc"
    ,
#include "codegen/prelude/convert.inc"
    ,
#include "codegen/prelude/reduce.inc"
    ,
#include "codegen/prelude/math.inc"
    ,
#include "codegen/prelude/math_f64.inc"
};

} // namespace

std::string prelude_cpp(Isa isa) {
  int lanes = isa == Isa::avx512 ? 16 : isa == Isa::avx2 ? 8 : 4;
  std::string text = fmt::format("#define W {}", lanes);
  for (const char* part : kParts) text += part;
  return text;
}

} // namespace tbx::codegen
