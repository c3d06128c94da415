// External tensor data: what may be read, and everything that must be refused.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/onnx_text.h"

namespace tbx {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A folder with a secret beside it: root/secret.bin, root/models/.
class ExternalDataTest : public ::testing::Test {
protected:
  void SetUp() override {
    root = fs::path(::testing::TempDir()) / fmt::format("tbx_external_{}", ::getpid());
    fs::remove_all(root);
    folder = root / "models";
    fs::create_directories(folder / "sub");
    write(root / "secret.bin");
    write(folder / "w.bin");
    write(folder / "sub" / "w.bin");
  }
  void TearDown() override { fs::remove_all(root); }

  /// Eight floats: 0, 1, 2, ...
  static void write(const fs::path& path) {
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < 8; ++i) {
      auto v = static_cast<float>(i);
      out.write(reinterpret_cast<const char*>(&v), sizeof v);
    }
  }

  static onnx::ModelProto model(const std::vector<std::pair<std::string, std::string>>& entries,
                                int64_t size = 2) {
    auto m = parse_graph("g (float[N] x) => (float[N] y) { y = Add(x, w) }");
    auto* t = m.mutable_graph()->add_initializer();
    t->set_name("w");
    t->set_data_type(onnx::TensorProto::FLOAT);
    t->add_dims(size);
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
      auto* e = t->add_external_data();
      e->set_key(key);
      e->set_value(value);
    }
    return m;
  }

  Graph import_from(const fs::path& file, const onnx::ModelProto& m, const ImportOptions& options = {}) {
    if (!fs::is_symlink(file)) std::ofstream(file, std::ios::binary) << to_bytes(m);
    return import_model(file, options);
  }

  std::vector<float> values(const onnx::ModelProto& m) {
    Graph g = import_from(folder / "model.onnx", m);
    auto w = g.at(find_value(g, "w")).constant->as<float>();
    return {w.begin(), w.end()};
  }

  std::string error(const onnx::ModelProto& m, const ImportOptions& options = {}) {
    try {
      import_from(folder / "model.onnx", m, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::model);
      EXPECT_THAT(e.what(), HasSubstr("'w'")); // the tensor
      return e.what();
    }
    ADD_FAILURE() << "imported without error";
    return "";
  }

  fs::path root, folder;
};

TEST_F(ExternalDataTest, Good) {
  EXPECT_THAT(values(model({{"location", "w.bin"}})), ElementsAre(0, 1));
  EXPECT_THAT(values(model({{"location", "w.bin"}, {"offset", "8"}, {"length", "8"}})), ElementsAre(2, 3));
  EXPECT_THAT(values(model({{"location", "sub/w.bin"}, {"offset", "24"}})), ElementsAre(6, 7));
  EXPECT_THAT(values(model({{"location", "./sub/w.bin"}})), ElementsAre(0, 1));
  EXPECT_THAT(values(model({{"location", "w.bin"}, {"offset", "32"}}, 0)), ElementsAre());
  // An offset that no float may have: copied, with the same bytes.
  auto shifted = values(model({{"location", "w.bin"}, {"offset", "6"}}, 1));
  EXPECT_EQ(shifted.size(), 1u);
}

TEST_F(ExternalDataTest, PathsThatLeaveTheFolder) {
  EXPECT_THAT(error(model({{"location", "../secret.bin"}})), HasSubstr("contains '..'"));
  EXPECT_THAT(error(model({{"location", "sub/../../secret.bin"}})), HasSubstr("contains '..'"));
  EXPECT_THAT(error(model({{"location", (root / "secret.bin").string()}})), HasSubstr("is an absolute path"));
  EXPECT_THAT(error(model({{"location", ""}})), HasSubstr("is empty"));
  EXPECT_THAT(error(model({{"location", std::string("w.bin\0.txt", 10)}})), HasSubstr("NUL"));
  EXPECT_THAT(error(model({{"location", "missing.bin"}})), HasSubstr("cannot be opened"));
  EXPECT_THAT(error(model({})), HasSubstr("no location"));
}

TEST_F(ExternalDataTest, Links) {
  fs::create_symlink(root / "secret.bin", folder / "absolute");
  fs::create_symlink("../secret.bin", folder / "relative");
  fs::create_directory_symlink(root, folder / "up");
  EXPECT_THAT(error(model({{"location", "absolute"}})), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(error(model({{"location", "relative"}})), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(error(model({{"location", "up/secret.bin"}})), HasSubstr("leaves the model's folder"));
  EXPECT_THAT(error(model({{"location", "sub"}})), HasSubstr("not a regular file"));
  EXPECT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(error(model({{"location", "fifo"}})), HasSubstr("not a regular file"));

  fs::create_symlink("w.bin", folder / "inside");
  fs::create_symlink(folder / "w.bin", folder / "inside_absolute");
  EXPECT_THAT(values(model({{"location", "inside"}})), ElementsAre(0, 1));
  EXPECT_THAT(values(model({{"location", "inside_absolute"}})), ElementsAre(0, 1));
}

TEST_F(ExternalDataTest, HuggingFaceCache) {
  // snapshots/x/model.onnx -> blobs/1, snapshots/x/model.onnx_data -> blobs/2
  fs::create_directories(root / "hub/blobs");
  fs::create_directories(root / "hub/snapshots/x");
  write(root / "hub/blobs/2");
  auto m = model({{"location", "model.onnx_data"}});
  std::ofstream(root / "hub/blobs/1", std::ios::binary) << to_bytes(m);
  fs::path named = root / "hub/snapshots/x/model.onnx";
  fs::create_symlink("../../blobs/1", named);
  fs::create_symlink("../../blobs/2", root / "hub/snapshots/x/model.onnx_data");
  EXPECT_NO_THROW(import_from(named, m));
  fs::remove(root / "hub/snapshots/x/model.onnx_data");
  fs::create_symlink("../../../secret.bin", root / "hub/snapshots/x/model.onnx_data");
  EXPECT_THROW(import_from(named, m), Error);
}

TEST_F(ExternalDataTest, HardLinks) {
  fs::create_hard_link(root / "secret.bin", folder / "hard");
  ImportOptions strict;
  strict.strict_links = true;
  EXPECT_THAT(error(model({{"location", "hard"}}), strict), HasSubstr("hard links"));
  EXPECT_THAT(values(model({{"location", "hard"}})), ElementsAre(0, 1));
}

TEST_F(ExternalDataTest, StrictLinksForbidSymbolicOnes) {
  ImportOptions strict;
  strict.strict_links = true;
  fs::create_symlink("w.bin", folder / "soft");
  fs::create_symlink("sub", folder / "way");
  EXPECT_THAT(error(model({{"location", "soft"}}), strict), HasSubstr("strict_links forbids"));
  EXPECT_THAT(error(model({{"location", "way/w.bin"}}), strict), HasSubstr("strict_links forbids"));
  EXPECT_NO_THROW(import_from(folder / "m.onnx", model({{"location", "sub/w.bin"}}), strict));
  EXPECT_NO_THROW(import_from(folder / "m.onnx", model({{"location", "soft"}})));
}

TEST_F(ExternalDataTest, ChecksumsAreOfTheWholeFile) {
  const std::string sha1 = "a00dc06e2530ee9f9d0babf934c6ce4e590b5a0c"; // by Python's hashlib
  auto with = [&](const std::string& checksum) {
    return model({{"location", "w.bin"}, {"checksum", checksum}});
  };
  EXPECT_THAT(values(with(sha1)), ElementsAre(0, 1));
  std::string upper = sha1;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_THAT(values(with(upper)), ElementsAre(0, 1));
  EXPECT_THAT(error(with("0" + sha1.substr(1))),
              HasSubstr("the SHA-1 of external data file 'w.bin' is " + sha1));
  EXPECT_THAT(error(with("")), HasSubstr("its checksum in the model is ''"));
}

TEST_F(ExternalDataTest, OffsetsAndLengths) {
  auto with = [&](const char* key, const char* value) {
    return error(model({{"location", "w.bin"}, {key, value}}));
  };
  EXPECT_THAT(with("offset", "25"), HasSubstr("goes past the end"));
  EXPECT_THAT(with("offset", "9223372036854775807"), HasSubstr("goes past the end"));
  EXPECT_THAT(with("offset", "18446744073709551615"), HasSubstr("not a valid size"));
  EXPECT_THAT(with("offset", "-1"), HasSubstr("not a valid size"));
  EXPECT_THAT(with("offset", "8 "), HasSubstr("not a valid size"));
  EXPECT_THAT(with("offset", ""), HasSubstr("not a valid size"));
  EXPECT_THAT(with("length", "4"), HasSubstr("has 4 bytes, its type and shape need 8"));
  EXPECT_THAT(with("length", "0x8"), HasSubstr("not a valid size"));
  EXPECT_THAT(with("lenght", "8"), HasSubstr("unknown external data key 'lenght'"));
  EXPECT_THAT(error(model({{"location", "w.bin"}, {"location", "sub/w.bin"}})), HasSubstr("given twice"));
  EXPECT_THAT(error(model({{"location", "w.bin"}}, 9)), HasSubstr("goes past the end"));
}

TEST_F(ExternalDataTest, NoFolderNoFiles) {
  auto m = model({{"location", "w.bin"}});
  EXPECT_THROW(import_proto(m), Error);
  std::string bytes = to_bytes(m);
  Graph g = import_model(std::as_bytes(std::span(bytes)), {}, folder);
  EXPECT_TRUE(g.at(find_value(g, "w")).constant);
  m = model({{"location", "*/_ORT_MEM_ADDR_/*"}, {"offset", "140737488355328"}, {"length", "8"}});
  EXPECT_THAT(error(m), HasSubstr("external data")); // never an address in memory
  // References inside sparse tensors and attributes follow the same rules.
  auto sparse = parse_graph("g (float[N] x) => (float[N] y) { y = Neg(x) }");
  auto* s = sparse.mutable_graph()->add_sparse_initializer();
  s->add_dims(4);
  *s->mutable_values() = model({{"location", "../secret.bin"}}).graph().initializer(0);
  EXPECT_THAT(error(sparse), HasSubstr("contains '..'"));
}

} // namespace
} // namespace tbx
