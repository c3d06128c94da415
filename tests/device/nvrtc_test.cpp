// Machine code of several texts in one binary, and the cache for it.
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "device/cuda/nvrtc.h"
#include "device/library.h"

namespace tbx::test {
namespace {

using device::cuda::compile_all;
using device::cuda::parts_of;

class Nvrtc : public testing::Test {
protected:
  void SetUp() override {
    try {
      device::cuda_library("libnvrtc.so.13");
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

std::string kernel(int i) {
  return "extern \"C\" __global__ void k" + std::to_string(i) + "(int* p) { *p = " + std::to_string(i) +
         "; }";
}

TEST_F(Nvrtc, JoinsParts) {
  for (const int count : {1, 2, 7}) {
    std::vector<std::string> texts;
    for (int i = 0; i < count; ++i) texts.push_back(kernel(i));
    const std::string binary = compile_all(texts, "sm_90");
    const auto parts = parts_of(binary);
    ASSERT_EQ(parts.size(), texts.size());
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(parts[i].starts_with("\x7f"
                                       "ELF"));
      EXPECT_NE(parts[i].find("k" + std::to_string(i)), std::string_view::npos);
    }
  }
  const std::string texts[] = {kernel(0), "no kernel", kernel(1)};
  EXPECT_THROW(compile_all(texts, "sm_90"), Error);
}

TEST_F(Nvrtc, KeepsInACache) {
  class Cache final : public device::cuda::BinaryCache {
  public:
    std::optional<std::string> find(const std::string& source, const std::string& architecture) override {
      const auto it = kept.find(source + architecture);
      return it == kept.end() ? std::nullopt : std::optional(it->second);
    }
    void keep(const std::string& source, const std::string& architecture,
              const std::string& binary) override {
      kept[source + architecture] = binary;
    }
    std::map<std::string, std::string> kept;
  };
  const auto cache = std::make_shared<Cache>();
  device::cuda::set_binary_cache(cache);
  const std::string code = device::cuda::compile_cached(kernel(3), "sm_90");
  EXPECT_EQ(cache->kept.size(), 1u);
  cache->kept.begin()->second = "something else";
  EXPECT_EQ(device::cuda::compile_cached(kernel(3), "sm_90"), "something else");
  device::cuda::set_binary_cache(nullptr);
  EXPECT_EQ(device::cuda::compile_cached(kernel(3), "sm_90").size(), code.size());
}

TEST(Parts, DamageIsSaid) {
  EXPECT_EQ(parts_of("abc").size(), 1u);
  const std::string magic = "tbx parts";
  const auto number = [](uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), sizeof n); };
  EXPECT_THROW(parts_of(magic), Error);
  EXPECT_THROW(parts_of(magic + number(uint64_t{1} << 60)), Error);
  EXPECT_THROW(parts_of(magic + number(2) + number(1) + number(9) + "abc"), Error);
  EXPECT_EQ(parts_of(magic + number(2) + number(1) + number(2) + "abc")[1], "bc");
}

} // namespace
} // namespace tbx::test
