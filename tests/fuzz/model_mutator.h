// Structural mutations of ONNX models, so that fuzzers get past the parser.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/fuzz/random.h"

namespace tbx::fuzz {

/// Changes a protobuf message in one to three places: numbers to awkward ones, names to other names of the
/// message or operators to other operators, parts removed, doubled, exchanged or replaced by parts of the
/// same type.
class ModelMutator {
public:
  explicit ModelMutator(uint64_t seed = 0) : random_(seed) {}
  void seed(uint64_t seed) { random_.seed(seed); }
  void mutate(google::protobuf::Message& message);

private:
  using Message = google::protobuf::Message;
  using Field = google::protobuf::FieldDescriptor;

  void collect(Message& message, size_t depth);
  void mutate_once(Message& message);
  void mutate_repeated(Message& message, const Field& field);
  void mutate_singular(Message& message, const Field& field);
  /// A copy of one of the tree's messages of this type; null when there is none.
  std::unique_ptr<Message> copy_of_one(const google::protobuf::Descriptor& type);
  std::string text(const Field& field, std::string old);
  std::string bytes(std::string old);
  int64_t integer(const Field& field, int64_t old);
  double real(double old);
  size_t below(size_t n) { return random_() % n; }

  Random random_;
  std::vector<Message*> messages_;                ///< of the tree
  std::vector<const std::string*> texts_;         ///< all strings of the tree
  std::vector<std::vector<const Field*>> fields_; ///< of one message of each depth, for `collect`
};

/// For LLVMFuzzerCustomMutator: models are changed as messages, what is none (and some models) as bytes.
size_t mutate_model(uint8_t* data, size_t size, size_t max_size, unsigned seed);

} // namespace tbx::fuzz
