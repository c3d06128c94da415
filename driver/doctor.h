// Doctor: what tensorbox finds on this machine, and what is missing.
#pragma once

#include <string>
#include <vector>

#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// One thing that is looked for.
struct Finding {
  std::string what;    ///< "libcudnn.so.9", "C++ compiler"
  std::string purpose; ///< "convolutions and attention"
  bool found = false;
  std::string version, where; ///< path, and for libraries how it was found
  std::string problem;        ///< why it was not found, or what is wrong with it; and the way out
};

/// The C++ compiler, the kernel cache, NVIDIA's libraries and the GPUs. Exported, not public: for the
/// command.
TBX_API std::vector<Finding> look_around();

} // namespace tbx::driver
