// What a package says of its signature is looked at when it is opened.
#include "package/package_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "graph_helper.h"

namespace tbx::test {
namespace {

using testing::HasSubstr;

TEST(PackageFile, ElementTypesExist) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("package_file_test_" + std::to_string(::getpid()));
  auto opened = [&](int32_t type, std::vector<TensorInfo> package::PackageIndex::*entries) {
    package::PackageIndex index;
    TensorInfo info;
    info.name = "x";
    info.type = type;
    (index.*entries).push_back(info);
    package::PackageWriter().write(file, index);
    return error_of([&] { package::Package::open(file); });
  };
  using Index = package::PackageIndex;
  for (auto entries : {&Index::inputs, &Index::outputs, &Index::overridable_initializers}) {
    for (int32_t type : {0, 1, 8, 28}) EXPECT_EQ(opened(type, entries), "no error");
    for (int32_t type : {-1, 29, 1 << 24})
      EXPECT_THAT(opened(type, entries),
                  HasSubstr("the package is damaged: 'x' is of element type " + std::to_string(type)));
  }
  std::filesystem::remove(file);
}

} // namespace
} // namespace tbx::test
