// Bytes of models: read from files in pieces, large raw data left where it lies, files that change.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>

#include "base/error.h"
#include "importer/model_bytes.h"
#include "importer/proto_file.h"
#include "importer/seen_files.h"
#include "tests/support/onnx_text.h"

namespace tbx::importer {
namespace {

using namespace test;
using ::testing::HasSubstr;

class ModelFile : public ::testing::Test {
protected:
  std::filesystem::path write(const std::string& bytes) const {
    std::ofstream(file_, std::ios::binary) << bytes;
    return file_;
  }
  void TearDown() override { std::filesystem::remove(file_); }
  std::filesystem::path file_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("tbx_bytes_{}.onnx", ::getpid());
};

std::string numbered_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 31 + i / 256);
  return bytes;
}

std::string all_of(ModelBytes& bytes) {
  std::string all;
  while (all.size() < bytes.size()) {
    const auto some = bytes.from(all.size());
    all.append(reinterpret_cast<const char*>(some.data()), some.size());
  }
  return all;
}

TEST_F(ModelFile, IsReadInPieces) {
  for (size_t size : {size_t{0}, size_t{1}, size_t{4097}, size_t{65'536}, size_t{65'537}, size_t{300'001},
                      (size_t{16} << 20) + 777}) { // longer than what is read before the time is looked at
    const std::string bytes = numbered_bytes(size);
    ModelBytes in_file(write(bytes), nullptr), in_memory(std::as_bytes(std::span(bytes)));
    for (ModelBytes* source : {&in_file, &in_memory}) {
      ASSERT_EQ(source->size(), size);
      EXPECT_TRUE(all_of(*source) == bytes) << size;
      if (size == 0) continue;
      EXPECT_EQ(static_cast<char>(source->from(0)[0]), bytes[0]) << "back at the beginning";
      for (size_t at : {size_t{0}, size / 2, size - 1}) {
        const auto copy = source->copy(at, size - at);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(copy.get()) % 64, 0u);
        EXPECT_TRUE(std::string_view(reinterpret_cast<const char*>(copy.get()), size - at) ==
                    std::string_view(bytes).substr(at))
            << size << " from " << at;
      }
    }
  }
}

TEST_F(ModelFile, ThatBecomesShorterIsAnError) {
  ModelBytes bytes(write(numbered_bytes(1'000'000)), nullptr);
  bytes.from(0);
  std::filesystem::resize_file(file_, 500'000);
  EXPECT_EQ(static_cast<char>(bytes.from(300'000)[0]), numbered_bytes(300'001).back());
  for (auto read : std::initializer_list<void (*)(ModelBytes&)>{
           [](ModelBytes& b) { b.from(700'000); }, [](ModelBytes& b) { b.copy(400'000, 300'000); }})
    try {
      read(bytes);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::model);
      EXPECT_THAT(e.what(), HasSubstr("became shorter while it was read"));
    }
}

onnx::TensorProto floats(const std::string& name, int64_t count, float first) {
  onnx::TensorProto t;
  t.set_name(name);
  t.set_data_type(onnx::TensorProto::FLOAT);
  t.add_dims(count);
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  t.set_raw_data(values.data(), values.size() * sizeof(float));
  return t;
}

void expect_floats(const Graph& g, const std::string& name, int64_t count, float first) {
  const ValueId id = find_value(g, name);
  ASSERT_GE(id, 0) << name;
  const auto& t = g.at(id).constant;
  ASSERT_TRUE(t) << name;
  ASSERT_EQ(t->dims, std::vector<int64_t>{count}) << name;
  for (int64_t i = 0; i < count; ++i)
    ASSERT_EQ(t->as<float>()[i], first + static_cast<float>(i)) << name << " " << i;
}

/// The model from a file and from memory.
void for_both(const ModelFile*, const std::filesystem::path& file, const std::string& bytes,
              const std::function<void(const Graph&)>& check) {
  check(import_model(file));
  check(import_bytes(bytes));
}

TEST_F(ModelFile, HasTensorsOfAllSizesEverywhere) {
  auto model =
      parse_graph("g (float[N] x) => (float[N] y) { a = Constant <value = float[1] {0}> ()  y = Relu(x) }");
  auto& graph = *model.mutable_graph();
  const int64_t sizes[] = {1, 7, 1023, 1024, 1025, 100'003};
  for (int64_t n : sizes) {
    auto& t = *graph.add_initializer() = floats("w" + std::to_string(n), n, static_cast<float>(n));
    t.set_doc_string("a text that is none of ours"); // comes behind the raw data
  }
  *graph.mutable_node(0)->mutable_attribute(0)->mutable_t() = floats("", 5000, 3);
  auto& sparse = *graph.add_sparse_initializer();
  *sparse.mutable_values() = floats("s", 2000, 1);
  auto& indices = *sparse.mutable_indices();
  indices.set_data_type(onnx::TensorProto::INT64);
  indices.add_dims(2000);
  std::vector<int64_t> places(2000);
  std::iota(places.begin(), places.end(), 0);
  indices.set_raw_data(places.data(), places.size() * sizeof(int64_t));
  sparse.add_dims(2000);
  const std::string bytes = to_bytes(model);
  for_both(this, write(bytes), bytes, [&](const Graph& g) {
    for (int64_t n : sizes) expect_floats(g, "w" + std::to_string(n), n, static_cast<float>(n));
    expect_floats(g, "a", 5000, 3);
    expect_floats(g, "s", 2000, 1);
  });
  ModelBytes source(std::as_bytes(std::span(bytes)));
  const auto skeleton = skeleton_of(source, {});
  ASSERT_TRUE(skeleton);
  EXPECT_EQ(skeleton->places.size(), 6u);
  EXPECT_LT(skeleton->text.size(), 8000u) << "small tensors and names";
}

/// Wrong sizes are found before anything is read.
TEST_F(ModelFile, RawDataOfAnotherSizeIsAnError) {
  auto model = parse_graph("g (float[N] x) => (float[N] y) { y = Relu(x) }");
  auto t = floats("w", 2000, 0);
  t.set_dims(0, 3000);
  *model.mutable_graph()->add_initializer() = t;
  try {
    import_bytes(to_bytes(model));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("has 8000 bytes of raw data, expected 12000"));
  }
}

/// A tensor that the wire has twice is what protobuf makes of both: the last raw data, sizes one after the
/// other.
TEST_F(ModelFile, TensorsThatProtobufJoinsAreJoined) {
  auto model =
      parse_graph("g (float[N] x) => (float[N] y) { a = Constant <value = float[1] {0}> ()  y = Relu(x) }");
  onnx::AttributeProto first, second;
  first.set_name("value");
  first.set_type(onnx::AttributeProto::TENSOR);
  *first.mutable_t() = floats("", 5000, 0);
  second.mutable_t()->set_raw_data(floats("", 5000, 9).raw_data());
  // Unknown order of fields is what the wire allows: the attribute's bytes are those of both.
  onnx::AttributeProto joined;
  const std::string both = first.SerializeAsString() + second.SerializeAsString();
  ASSERT_TRUE(joined.ParseFromString(both));
  ASSERT_EQ(joined.t().dims_size(), 1);
  const std::string plain = joined.SerializeAsString();
  *model.mutable_graph()->mutable_node(0)->mutable_attribute(0) = joined;
  std::string bytes = to_bytes(model);
  const size_t at = bytes.find(plain);
  ASSERT_NE(at, std::string::npos);
  // The messages around it are longer by as much: attribute, node, graph. Written anew by hand.
  auto field = [](int number, const std::string& contents) {
    std::string f(1, static_cast<char>(number << 3 | 2));
    for (size_t n = contents.size();; n >>= 7) {
      f += static_cast<char>((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
      if (n <= 0x7f) break;
    }
    return f + contents;
  };
  onnx::NodeProto constant;
  constant.add_output("a");
  constant.set_op_type("Constant");
  const std::string node = constant.SerializeAsString() + field(5, both);
  auto rest = model;
  rest.mutable_graph()->mutable_node()->DeleteSubrange(0, 1);
  const std::string graph = field(1, node) + rest.graph().SerializeAsString();
  rest.clear_graph();
  bytes = rest.SerializeAsString() + field(7, graph);
  ModelBytes source(std::as_bytes(std::span(bytes)));
  EXPECT_FALSE(skeleton_of(source, {})) << "protobuf joins them";
  for_both(this, write(bytes), bytes, [&](const Graph& g) { expect_floats(g, "a", 5000, 9); });
}

/// What protobuf makes of the bytes, raw data put back and texts of tensors left out; or the error.
template <class Parse> std::string outcome(Parse&& parse) {
  try {
    ParsedModel parsed = parse();
    auto whole = [&](onnx::TensorProto& t) {
      if (const auto place = parsed.raw.place_of(t)) {
        const auto bytes = parsed.raw.copy(*place);
        t.set_raw_data(bytes.get(), place->bytes);
      }
      t.clear_doc_string();
    };
    for (auto& t : *parsed.model.mutable_graph()->mutable_initializer()) whole(t);
    for (auto& sparse : *parsed.model.mutable_graph()->mutable_sparse_initializer())
      for (auto* t : {sparse.mutable_values(), sparse.mutable_indices()}) whole(*t);
    for (auto& node : *parsed.model.mutable_graph()->mutable_node())
      for (auto& attribute : *node.mutable_attribute())
        if (attribute.has_t()) whole(*attribute.mutable_t());
    return parsed.model.SerializeAsString();
  } catch (const Error& e) {
    return e.what();
  }
}

/// Whatever the bytes are, leaving raw data out of them changes nothing.
TEST_F(ModelFile, BytesThatWereSpoiltAreReadAsProtobufReadsThem) {
  auto model =
      parse_graph("g (float[N] x) => (float[N] y) { a = Constant <value = float[1] {0}> ()  y = Relu(x) }");
  *model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t() = floats("", 1100, 3);
  *model.mutable_graph()->add_initializer() = floats("w", 1500, 1);
  *model.mutable_graph()->add_initializer() = floats("v", 3, 1);
  model.mutable_graph()->mutable_initializer(0)->set_doc_string("text");
  *model.mutable_graph()->add_sparse_initializer()->mutable_values() = floats("s", 1024, 1);
  const std::string bytes = to_bytes(model);
  std::vector<size_t> heads; // what is no raw data
  for (size_t i = 0; i < bytes.size(); ++i)
    if (i < 150 || i > bytes.size() - 200 || i % 97 == 0) heads.push_back(i);
  std::mt19937 random(7);
  int read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string spoilt = bytes;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = heads[random() % heads.size()] % spoilt.size();
      switch (random() % 4) {
      case 0: spoilt[at] = static_cast<char>(random()); break;
      case 1: spoilt.erase(at, 1 + random() % 4); break;
      case 2: spoilt.insert(at, bytes, random() % bytes.size(), 1 + random() % 6000); break;
      default: spoilt.insert(at, 1, static_cast<char>(random())); break;
      }
    }
    const auto span = std::as_bytes(std::span(spoilt));
    const std::string plain = outcome([&] { return ParsedModel{parse_model(span, {}), {}}; });
    ASSERT_EQ(outcome([&] { return read_model(ModelBytes(span), {}); }), plain) << "round " << round;
    read += !plain.starts_with("ModelError");
  }
  EXPECT_GT(read, 100);
}

TEST_F(ModelFile, IsTheOneOfBefore) {
  const std::string bytes = to_bytes(parse_graph("g (float[N] x) => (float[N] y) { y = Relu(x) }"));
  ImportOptions options;
  options.seen = std::make_shared<SeenFiles>();
  import_model(write(bytes), options);
  import_model(file_, options);
  // The same bytes under the same name, in a file of their own.
  const std::filesystem::path other = file_.string() + ".other";
  std::filesystem::copy_file(file_, other, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::rename(other, file_);
  try {
    import_model(file_, options);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::model);
    EXPECT_THAT(e.what(), HasSubstr("is not what it was when the model was loaded"));
  }
  import_model(file_); // who asks for nothing gets what is there
}

} // namespace
} // namespace tbx::importer
