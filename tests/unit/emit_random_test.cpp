// Random kernels of all element types: generated code against the evaluator, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>

#include "random_kernel_helper.h"

namespace tbx::test {
namespace {

TEST(EmitRandom, AgreesWithTheEvaluator) {
  if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  // TBX_SEED=n runs that kernel alone; TBX_ROUNDS=n that many times as many kernels.
  const char *seed = std::getenv("TBX_SEED"), *rounds = std::getenv("TBX_ROUNDS");
  int count = 24 * (rounds ? std::atoi(rounds) : 1);
  for (Isa isa : runnable_isas()) {
    std::vector<std::shared_ptr<KernelCase>> cases;
    for (int i = 0; i < (seed ? 1 : count); ++i)
      cases.push_back(
          random_kernel(seed ? static_cast<uint32_t>(std::atoi(seed)) : static_cast<uint32_t>(1 + i)));
    run_cases(cases, isa);
  }
}

} // namespace
} // namespace tbx::test
