#include "tests/fuzz/model_mutator.h"

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace tbx::fuzz {
namespace {

constexpr size_t kMaxDepth = 40;
constexpr size_t kMaxMessages = 4000, kMaxBytes = 1 << 16;

using Message = google::protobuf::Message;
using Field = google::protobuf::FieldDescriptor;

const std::vector<std::string>& operators() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas())
      list.push_back(schema.Name());
    return list;
  }();
  return names;
}

} // namespace

void ModelMutator::mutate(Message& message) {
  fields_.resize(kMaxDepth + 1);
  for (size_t n = 1 + below(3); n > 0; --n) {
    messages_.clear();
    texts_.clear();
    collect(message, 0);
    mutate_once(*messages_[below(messages_.size())]);
  }
}

void ModelMutator::collect(Message& message, size_t depth) {
  if (depth > kMaxDepth || messages_.size() >= kMaxMessages) return;
  messages_.push_back(&message);
  const auto& reflection = *message.GetReflection();
  std::vector<const Field*>& fields = fields_[depth];
  reflection.ListFields(message, &fields);
  std::string unused; // what texts are put into that are no std::string already: none
  for (const Field* f : fields) {
    const bool is_message = f->cpp_type() == Field::CPPTYPE_MESSAGE;
    if (!is_message && f->type() != Field::TYPE_STRING) continue;
    const int n = f->is_repeated() ? reflection.FieldSize(message, f) : 1;
    for (int i = 0; i < n && i < 64; ++i) {
      if (is_message)
        collect(*(f->is_repeated() ? reflection.MutableRepeatedMessage(&message, f, i)
                                   : reflection.MutableMessage(&message, f)),
                depth + 1);
      else
        texts_.push_back(&(f->is_repeated() ? reflection.GetRepeatedStringReference(message, f, i, &unused)
                                            : reflection.GetStringReference(message, f, &unused)));
    }
  }
}

void ModelMutator::mutate_once(Message& message) {
  const auto& reflection = *message.GetReflection();
  std::vector<const Field*> set;
  reflection.ListFields(message, &set);
  const auto& type = *message.GetDescriptor();
  if (type.field_count() == 0) return;
  // Mostly what is there; now and then something that is not.
  const Field& field = set.empty() || below(8) == 0
                           ? *type.field(static_cast<int>(below(static_cast<size_t>(type.field_count()))))
                           : *set[below(set.size())];
  field.is_repeated() ? mutate_repeated(message, field) : mutate_singular(message, field);
}

void ModelMutator::mutate_repeated(Message& message, const Field& field) {
  const auto& r = *message.GetReflection();
  const auto n = static_cast<size_t>(r.FieldSize(message, &field));
  const size_t action = n == 0 ? 0 : below(5), i = n == 0 ? 0 : below(n);
  const int at = static_cast<int>(i);
  if (action == 1) {
    r.SwapElements(&message, &field, at, static_cast<int>(n) - 1);
    return r.RemoveLast(&message, &field);
  }
  if (action == 2) return r.SwapElements(&message, &field, at, static_cast<int>(below(n)));
  const bool append = action == 0 && n < 1000;
  if (!append && n == 0) return;
  switch (field.cpp_type()) {
  case Field::CPPTYPE_MESSAGE: {
    if (append && n > 0 && below(2) == 0) {
      Message* part = r.AddMessage(&message, &field);
      return part->CopyFrom(r.GetRepeatedMessage(message, &field, at));
    }
    const std::unique_ptr<Message> other = copy_of_one(*field.message_type());
    Message* part = append ? r.AddMessage(&message, &field) : r.MutableRepeatedMessage(&message, &field, at);
    if (other) part->CopyFrom(*other);
    return;
  }
  case Field::CPPTYPE_STRING: {
    std::string old = n ? r.GetRepeatedString(message, &field, at) : "";
    std::string made =
        field.type() == Field::TYPE_BYTES ? bytes(std::move(old)) : text(field, std::move(old));
    return append ? r.AddString(&message, &field, std::move(made))
                  : r.SetRepeatedString(&message, &field, at, std::move(made));
  }
  case Field::CPPTYPE_INT64: {
    const int64_t v = integer(field, n ? r.GetRepeatedInt64(message, &field, at) : 0);
    return append ? r.AddInt64(&message, &field, v) : r.SetRepeatedInt64(&message, &field, at, v);
  }
  case Field::CPPTYPE_INT32: {
    const auto v = static_cast<int32_t>(integer(field, n ? r.GetRepeatedInt32(message, &field, at) : 0));
    return append ? r.AddInt32(&message, &field, v) : r.SetRepeatedInt32(&message, &field, at, v);
  }
  case Field::CPPTYPE_FLOAT: {
    const auto v = static_cast<float>(real(n ? r.GetRepeatedFloat(message, &field, at) : 0));
    return append ? r.AddFloat(&message, &field, v) : r.SetRepeatedFloat(&message, &field, at, v);
  }
  default: return;
  }
}

void ModelMutator::mutate_singular(Message& message, const Field& field) {
  const auto& r = *message.GetReflection();
  if (below(6) == 0) return r.ClearField(&message, &field);
  switch (field.cpp_type()) {
  case Field::CPPTYPE_MESSAGE: {
    // The copy comes first: the field may push another one of its oneof out.
    const std::unique_ptr<Message> other = copy_of_one(*field.message_type());
    Message* part = r.MutableMessage(&message, &field);
    if (other) part->CopyFrom(*other);
    return;
  }
  case Field::CPPTYPE_STRING: {
    std::string old = r.GetString(message, &field);
    return r.SetString(&message, &field,
                       field.type() == Field::TYPE_BYTES ? bytes(std::move(old))
                                                         : text(field, std::move(old)));
  }
  case Field::CPPTYPE_INT64: return r.SetInt64(&message, &field, integer(field, r.GetInt64(message, &field)));
  case Field::CPPTYPE_INT32:
    return r.SetInt32(&message, &field, static_cast<int32_t>(integer(field, r.GetInt32(message, &field))));
  case Field::CPPTYPE_FLOAT:
    return r.SetFloat(&message, &field, static_cast<float>(real(r.GetFloat(message, &field))));
  case Field::CPPTYPE_ENUM: return r.SetEnumValue(&message, &field, static_cast<int>(below(28)));
  default: return;
  }
}

std::unique_ptr<Message> ModelMutator::copy_of_one(const google::protobuf::Descriptor& type) {
  std::vector<const Message*> like;
  for (const Message* m : messages_)
    if (m->GetDescriptor() == &type && m->ByteSizeLong() <= kMaxBytes) like.push_back(m);
  if (like.empty()) return nullptr;
  const Message* one = like[below(like.size())];
  std::unique_ptr<Message> copy(one->New());
  copy->CopyFrom(*one);
  return copy;
}

std::string ModelMutator::text(const Field& field, std::string old) {
  if (field.name() == "op_type" && below(4) != 0) return operators()[below(operators().size())];
  if (!texts_.empty() && below(4) != 0) return *texts_[below(texts_.size())];
  const char* const awkward[] = {"", "x", "\n", "com.microsoft", "ai.onnx.ml", "batch", "\xc3\xa4"};
  return below(8) == 0 ? old + "x" : awkward[below(std::size(awkward))];
}

std::string ModelMutator::bytes(std::string old) {
  if (old.empty() || below(8) == 0) return std::string(below(64), static_cast<char>(below(256)));
  switch (below(3)) {
  case 0: old.resize(old.size() / 2); break;
  case 1: old[below(old.size())] = static_cast<char>(below(256)); break;
  default:
    if (old.size() >= 8) {
      const int64_t v = integer(*onnx::TensorProto::descriptor()->FindFieldByName("int64_data"), 0);
      std::memcpy(old.data() + below(old.size() / 8) * 8, &v, 8);
    }
  }
  return old;
}

int64_t ModelMutator::integer(const Field& field, int64_t old) {
  if (field.name() == "data_type" || field.name() == "elem_type") return static_cast<int64_t>(below(28));
  using Limits = std::numeric_limits<int64_t>;
  const int64_t awkward[] = {0,
                             1,
                             -1,
                             2,
                             3,
                             5,
                             7,
                             -7,
                             16,
                             100,
                             99,
                             64,
                             11,
                             1 << 20,
                             1 << 30,
                             INT32_MAX,
                             1LL << 31,
                             1LL << 40,
                             Limits::max(),
                             Limits::min()};
  switch (below(4)) {
  case 0: return static_cast<int64_t>(static_cast<uint64_t>(old) + 1);
  case 1: return static_cast<int64_t>(static_cast<uint64_t>(old) - 1);
  default: return awkward[below(std::size(awkward))];
  }
}

double ModelMutator::real(double old) {
  const double awkward[] = {0,
                            -0.0,
                            1,
                            -1,
                            0.5,
                            2,
                            1e30,
                            -1e30,
                            1e-40,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  return below(4) == 0 ? old * 2 : awkward[below(std::size(awkward))];
}

} // namespace tbx::fuzz

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace tbx::fuzz {

size_t mutate_model(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  // Mostly it is the model that was made last that is changed once more.
  static onnx::ModelProto model;
  static std::string made;
  static ModelMutator mutator;
  if (seed % 16 == 0 || size > kMaxBytes) return LLVMFuzzerMutate(data, size, max_size);
  if (made.size() != size || std::memcmp(made.data(), data, size) != 0) {
    made.clear();
    if (!model.ParseFromArray(data, static_cast<int>(size))) return LLVMFuzzerMutate(data, size, max_size);
  }
  mutator.seed(seed);
  mutator.mutate(model);
  made.clear();
  if (!model.AppendToString(&made) || made.empty() || made.size() > max_size) {
    made.clear();
    return LLVMFuzzerMutate(data, size, max_size);
  }
  std::memcpy(data, made.data(), made.size());
  return made.size();
}

} // namespace tbx::fuzz
