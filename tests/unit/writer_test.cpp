// Names in generated text.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "codegen/prelude.h"
#include "codegen/writer.h"
#include "kernel_helper.h"

namespace tbx::test {
namespace {

TEST(Writer, NamesAreNoTypes) {
  std::set<std::string> types;
  const std::string all = "u8 i8 u16 i16 u32 i32 u64 i64 f32 f64";
  for (Isa isa : {Isa::sse, Isa::avx2, Isa::avx512}) {
    const std::string text = codegen::prelude_for(isa, all);
    const std::regex type("typedef [^;]* ([a-z]+[0-9]+);");
    for (std::sregex_iterator it(text.begin(), text.end(), type), end; it != end; ++it)
      types.insert((*it)[1]);
  }
  ASSERT_GE(types.size(), 10u);
  KernelCase c("k");
  codegen::Writer w(c.kernel, 8);
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i)
    for (const char* prefix : {"i", "u", "f"}) {
      const std::string name = w.fresh(prefix);
      EXPECT_FALSE(types.contains(name)) << name;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
}

} // namespace
} // namespace tbx::test
