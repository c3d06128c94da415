// Results of the C++ interface, and what a model says of itself in that of C.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "../support/onnx_text.h"
#include "tensorbox/c.h"
#include "tensorbox/tensorbox.h"

namespace tbx::test {
namespace {

TEST(Result, OfValues) {
  const Result<std::string> same = std::string("text");
  EXPECT_TRUE(same.ok() && same);
  EXPECT_EQ(same.value(), "text");
  EXPECT_EQ(&same.value(), &same.value()) << "a value that cannot change is not copied";
  EXPECT_THROW((void)same.error(), std::bad_variant_access);
  Result<std::unique_ptr<int>> moved = std::make_unique<int>(7);
  *moved.value() += 1;
  EXPECT_EQ(*std::move(moved).value(), 8);
}

TEST(Result, OfFailures) {
  const Result<std::string> failed = Failure{Failure::unsupported_error, "not here"};
  EXPECT_FALSE(failed.ok() || failed);
  EXPECT_EQ(failed.error().kind, Failure::unsupported_error);
  try {
    (void)failed.value();
    FAIL();
  } catch (const Exception& e) {
    EXPECT_STREQ(e.what(), "not here");
  }
}

std::unique_ptr<tbx_session, void (*)(tbx_session*)> session_of(const onnx::ModelProto& model) {
  const std::string bytes = to_bytes(model);
  tbx_options options{};
  options.size = sizeof options;
  options.evaluate = 1;
  tbx_error* error = nullptr;
  tbx_session* session = tbx_compile_bytes(bytes.data(), bytes.size(), &options, &error);
  EXPECT_NE(session, nullptr) << tbx_error_text(error);
  return {session, &tbx_session_free};
}

TEST(CMetadata, IsThatOfTheModel) {
  onnx::ModelProto model = parse_graph("named (float[n] x) => (float[n] y) { y = Neg(x) }");
  model.set_producer_name("tests");
  model.set_producer_version("1.5");
  model.set_domain("org.tests");
  model.set_doc_string("about the model");
  model.set_model_version(-3);
  model.mutable_graph()->set_doc_string("about the graph");
  for (const auto& [key, value] : {std::pair{"names", "{0: 'cat'}"}, {"domain", "a key"}, {"empty", ""}}) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  const auto session = session_of(model);
  EXPECT_STREQ(tbx_metadata(session.get(), "producer_name"), "tests");
  EXPECT_STREQ(tbx_metadata(session.get(), "producer_version"), "1.5");
  EXPECT_STREQ(tbx_metadata(session.get(), "graph_name"), "named");
  EXPECT_STREQ(tbx_metadata(session.get(), "domain"), "org.tests");
  EXPECT_STREQ(tbx_metadata(session.get(), "description"), "about the model");
  EXPECT_STREQ(tbx_metadata(session.get(), "graph_description"), "about the graph");
  EXPECT_STREQ(tbx_metadata(session.get(), "version"), "-3");
  EXPECT_STREQ(tbx_custom_metadata(session.get(), "names"), "{0: 'cat'}");
  EXPECT_STREQ(tbx_custom_metadata(session.get(), "domain"), "a key");
  EXPECT_STREQ(tbx_custom_metadata(session.get(), "empty"), "");
  std::vector<std::string> keys;
  for (size_t i = 0; i < tbx_num_custom_metadata(session.get()); ++i)
    keys.emplace_back(tbx_custom_metadata_key(session.get(), i));
  EXPECT_EQ(keys, (std::vector<std::string>{"domain", "empty", "names"}));
}

TEST(CMetadata, WhatIsNotThereIsNull) {
  const auto session = session_of(parse_graph("named (float[n] x) => (float[n] y) { y = Neg(x) }"));
  for (const char* name : {"producer_name", "description", "version", "names", ""})
    EXPECT_EQ(tbx_metadata(session.get(), name), nullptr) << name;
  EXPECT_EQ(tbx_custom_metadata(session.get(), "names"), nullptr);
  EXPECT_EQ(tbx_num_custom_metadata(session.get()), 0u);
  EXPECT_EQ(tbx_custom_metadata_key(session.get(), 0), nullptr);
  for (const tbx_session* s : {session.get(), static_cast<tbx_session*>(nullptr)}) {
    EXPECT_EQ(tbx_metadata(s, nullptr), nullptr);
    EXPECT_EQ(tbx_custom_metadata(s, nullptr), nullptr);
  }
  EXPECT_EQ(tbx_metadata(nullptr, "domain"), nullptr);
  EXPECT_EQ(tbx_custom_metadata(nullptr, "names"), nullptr);
  EXPECT_EQ(tbx_num_custom_metadata(nullptr), 0u);
}

} // namespace
} // namespace tbx::test
