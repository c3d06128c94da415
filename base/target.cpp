#include "base/target.h"

#include "base/caches.h"

namespace tbx {

Target host_target() {
  Target t;
  t.isa = t.library_isa = host_isa();
  const Caches caches = host_caches();
  t.l1_bytes = caches.l1_bytes;
  t.l2_bytes = caches.l2_bytes;
  return t;
}

} // namespace tbx
