// Stores whose few points lie beside each other, as channels last: computed together and stored as whole
// vectors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/emit.h"
#include "kernel_helper.h"

namespace tbx::test {
namespace {

using namespace ir;
using ::testing::HasSubstr;
using ::testing::Not;

/// y[image, pixel, channel] = 3 * x[image, channel, pixel] + channel.
std::shared_ptr<KernelCase> channels_last(DType from, DType to, int64_t channels, int64_t pixels,
                                          bool is_known, int64_t images = 2) {
  auto k = std::make_shared<KernelCase>(
      fmt::format("{} to {}: {} x {}", name_of(from), name_of(to), channels, pixels));
  const SymInt p = is_known ? SymInt(pixels) : k->symbol("pixels", pixels);
  Context& c = k->c();
  const int x = k->buffer(from, SymInt(images * channels) * p, Access::read),
            y = k->buffer(to, SymInt(images * channels) * p, Access::write);
  k->kernel.outer = {images, channels, p};
  k->phase();
  const SymInt place = (c.var(0) * SymInt(channels) + c.var(1)) * p + c.var(2);
  const DType type = compute_type(to);
  const Expr value = c.cast(k->load(x, place), type);
  const Expr sum = add(mul(value, c.constant(type, 3)), c.cast(c.index(c.var(1)), type));
  k->store(y, (c.var(0) * p + c.var(2)) * SymInt(channels) + c.var(1), sum);
  k->fill = [](int, int64_t i) { return static_cast<double>(i % 23); };
  return k;
}

TEST(EmitBeside, EveryTypeAtEverySize) {
  if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (int64_t channels : {2, 3, 4}) {
    for (int64_t pixels : {1, 2, 3, 4, 7, 15, 16, 17, 31, 33, 1024, 1031, 3000})
      for (bool is_known : {true, false})
        cases.push_back(channels_last(DType::f32, DType::f32, channels, pixels, is_known));
    for (DType type : {DType::f16, DType::bf16, DType::f64, DType::u8, DType::i8, DType::i64, DType::i32})
      for (int64_t pixels : {5, 40, 1057}) {
        cases.push_back(channels_last(type, type, channels, pixels, false));
        cases.push_back(channels_last(DType::u8, type, channels, pixels, true));
      }
  }
  run_cases(cases);
}

/// As complex numbers are made of two parts: which one an element is of, its number among the few says.
TEST(EmitBeside, ChoosesByTheNumber) {
  if (!codegen::have_compiler()) GTEST_SKIP() << "no compiler";
  std::vector<std::shared_ptr<KernelCase>> cases;
  for (int64_t channels : {2, 3, 4})
    for (int64_t n : {1, 17, 40}) {
      auto k = std::make_shared<KernelCase>(fmt::format("{} of {}", n, channels));
      const SymInt p = k->symbol("pixels", n);
      Context& c = k->c();
      const int x = k->buffer(DType::f32, p, Access::read), z = k->buffer(DType::f32, p, Access::read),
                y = k->buffer(DType::f32, SymInt(channels) * p, Access::write);
      k->kernel.outer = {channels, p};
      k->phase();
      const Expr first = c.binary(Op::equal, c.index(c.var(0)), c.constant_int(DType::i64, 0));
      k->store(y, c.var(1) * SymInt(channels) + c.var(0),
               c.where(first, k->load(x, c.var(1)), k->load(z, c.var(1))));
      cases.push_back(k);
    }
  run_cases(cases);
}

TEST(EmitBeside, WholeVectorsAreStored) {
  for (Isa isa : {Isa::sse, Isa::avx2, Isa::avx512}) {
    Target target;
    target.isa = isa;
    for (int64_t channels : {1, 2, 3, 4, 5}) {
      const auto k = channels_last(DType::f32, DType::f32, channels, 500, false);
      const std::string text = codegen::emit_cpp(k->kernel, target).text;
      const std::string store = fmt::format("stb{}(", channels);
      if (channels >= 2 && channels <= 4)
        EXPECT_THAT(text, HasSubstr(store)) << text;
      else
        EXPECT_THAT(text, Not(HasSubstr("stb")));
    }
  }
}

/// A buffer that is read, too, is written point after point.
TEST(EmitBeside, NotWhatIsReadAsWell) {
  const auto k = std::make_shared<KernelCase>("in place");
  Context& c = k->c();
  const int y = k->buffer(DType::f32, 3 * 100, Access::read_write);
  k->kernel.outer = {3, 100};
  k->phase();
  const SymInt place = c.var(1) * SymInt(3) + c.var(0);
  k->store(y, place, add(k->load(y, place), c.constant(DType::f32, 1)));
  EXPECT_THAT(codegen::emit_cpp(k->kernel, Target()).text, Not(HasSubstr("stb")));
  if (codegen::have_compiler()) run_cases({k});
}

} // namespace
} // namespace tbx::test
