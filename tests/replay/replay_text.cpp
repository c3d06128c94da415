// replay_text MODEL STAGE: what the compiler makes of a model, as `tbx dump` prints it, for one machine that
// is the same everywhere: AVX2, 4 threads, caches of a usual size. replay.py caps what libraries see of this
// one's CPU.
#include <fmt/format.h>

#include <exception>

#include "base/caches.h"
#include "driver/compile.h"

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("usage: replay_text MODEL STAGE");
  const tbx::PretendedCaches caches{tbx::Caches{}};
  tbx::CompileOptions options;
  options.isa = "avx2";
  options.threads = 4;
  fmt::print("{}", tbx::driver::dump_stage(std::filesystem::path(argv[1]), options, argv[2]));
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
