#include "extern_kernels/tiles.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tbx::extern_kernels {

bool has_tile_registers(TileFeature feature) {
  constexpr unsigned kBf16 = 1 << 22, kTile = 1 << 24, kBytes = 1 << 25;
  constexpr long kRequest = 0x1023, kTileData = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  const unsigned wanted = kTile | (feature == TileFeature::bf16 ? kBf16 : kBytes);
  unsigned a = 0, b = 0, c = 0, features = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &features) != 0 && (features & wanted) == wanted &&
         syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

} // namespace tbx::extern_kernels
#else
namespace tbx::extern_kernels {
bool has_tile_registers(TileFeature) { return false; }
} // namespace tbx::extern_kernels
#endif
