// Lanes of vectors that belong to no element: what is computed in them is not stored, but takes its time. On
// some CPUs a product of denormal numbers takes many times as long as others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

#include "codegen/emit.h"
#include "kernel_helper.h"

namespace tbx::test {
namespace {

using namespace ir;

constexpr unsigned kFlags = 0x3f, kDenormal = 0x02; // of MXCSR

/// Leaves denormal floats where functions that are called next have their variables.
__attribute__((noinline)) void spoil_stack() {
  uint32_t words[1 << 14];
  for (uint32_t& w : words) w = 0x00300030;
  asm volatile("" : : "r"(words) : "memory");
}

/// y = 0.75 * x, of [columns, rows] that lies as its transpose.
std::shared_ptr<KernelCase> turned(DType type, int64_t rows, int64_t columns, bool is_known) {
  auto k = std::make_shared<KernelCase>(fmt::format("{} {} x {}", name_of(type), rows, columns));
  const SymInt r = is_known ? SymInt(rows) : k->symbol("rows", rows);
  Context& c = k->c();
  const int x = k->buffer(type, r * SymInt(columns), Access::read),
            y = k->buffer(type, r * SymInt(columns), Access::write);
  k->kernel.outer = {columns, r};
  k->phase();
  const Expr value =
      mul(k->load(x, c.var(1) * SymInt(columns) + c.var(0)), c.constant(compute_type(type), 0.75));
  k->store(y, c.var(0) * r + c.var(1), value);
  k->fill = [](int, int64_t i) { return 1.0 + static_cast<double>(i % 7); };
  k->relative = k->absolute = 1e-2;
  return k;
}

TEST(EmitLanes, NothingIsComputedOfWhatTheStackHolds) {
  if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (DType type : {DType::f32, DType::f16, DType::f64})
    for (int64_t rows : {1, 3, 4, 7, 20})
      for (bool is_known : {true, false}) cases.push_back(turned(type, rows, 24, is_known));
  for (Isa isa : runnable_isas()) {
    SCOPED_TRACE(name_of(isa));
    Target target;
    target.isa = isa;
    std::vector<codegen::EmittedKernel> emitted;
    emitted.reserve(cases.size());
    for (const auto& k : cases) emitted.push_back(codegen::emit_cpp(k->kernel, target));
    const std::shared_ptr<codegen::Module> module = codegen::build_module(emitted, isa);
    for (size_t i = 0; i < cases.size(); ++i)
      compare_with_evaluator(*cases[i], emitted[i], [&](const KernelRun& run) {
        std::vector<char> scratch(static_cast<size_t>(run.scratch_bytes) + 64);
        const unsigned before = _mm_getcsr();
        spoil_stack();
        _mm_setcsr(before & ~kFlags);
        const int64_t result = module->find(emitted[i].function)(
            run.buffers.data(), run.sizes.data(), 0, run.tasks,
            scratch.data() + 64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
        EXPECT_EQ(_mm_getcsr() & kDenormal, 0U);
        _mm_setcsr(before);
        return result;
      });
  }
}

} // namespace
} // namespace tbx::test
#endif
