#include "importer/wire.h"

#include <cstdint>
#include <vector>

#include "base/budget.h"
#include "base/error.h"

namespace tbx::importer {
namespace {

enum class Message : uint8_t {
  none, ///< a string, bytes or a message without parts worth looking at
  model,
  graph,
  node,
  attribute,
  tensor,
  sparse_tensor,
  value_info,
  type,
  tensor_type,
  element_type,
  map_type,
  shape,
  function,
  training,
};

struct Part {
  Message of;
  uint32_t field;
  Message is;
};

/// The messages of onnx-ml.proto that nest or repeat.
constexpr Part kParts[] = {
    {Message::model, 7, Message::graph},
    {Message::model, 20, Message::training},
    {Message::model, 25, Message::function},
    {Message::training, 1, Message::graph},
    {Message::training, 2, Message::graph},
    {Message::graph, 1, Message::node},
    {Message::graph, 5, Message::tensor},
    {Message::graph, 11, Message::value_info},
    {Message::graph, 12, Message::value_info},
    {Message::graph, 13, Message::value_info},
    {Message::graph, 15, Message::sparse_tensor},
    {Message::node, 5, Message::attribute},
    {Message::attribute, 5, Message::tensor},
    {Message::attribute, 6, Message::graph},
    {Message::attribute, 10, Message::tensor},
    {Message::attribute, 11, Message::graph},
    {Message::attribute, 14, Message::type},
    {Message::attribute, 15, Message::type},
    {Message::attribute, 22, Message::sparse_tensor},
    {Message::attribute, 23, Message::sparse_tensor},
    {Message::sparse_tensor, 1, Message::tensor},
    {Message::sparse_tensor, 2, Message::tensor},
    {Message::value_info, 2, Message::type},
    {Message::type, 1, Message::tensor_type},
    {Message::type, 4, Message::element_type},
    {Message::type, 5, Message::map_type},
    {Message::type, 8, Message::tensor_type},
    {Message::type, 9, Message::element_type},
    {Message::tensor_type, 2, Message::shape},
    {Message::element_type, 1, Message::type},
    {Message::map_type, 2, Message::type},
    {Message::function, 7, Message::node},
    {Message::function, 11, Message::attribute},
    {Message::function, 12, Message::value_info},
};

Message part_of(Message message, uint32_t field) {
  for (const Part& p : kParts)
    if (p.of == message && p.field == field) return p.is;
  return Message::none;
}

class Reader {
public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t at() const { return at_; }

  uint64_t varint(size_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end) fail("a number is cut off");
      auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("a number has more than ten bytes");
  }
  void skip(uint64_t count, size_t end) {
    if (count > end - at_) fail("a field goes past the end of the message around it");
    at_ += count;
  }
  void rewind(size_t at) { at_ = at; }
  [[noreturn]] void fail(const char* why) const {
    throw Error(ErrorKind::model,
                fmt::format("the bytes are not a valid ONNX model: {} (at byte {})", why, at_),
                "the file may be cut off, or be of another format");
  }

private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

[[noreturn]] void over_limit(const char* what, int64_t limit, const char* option) {
  throw Error(ErrorKind::model, fmt::format("the model has more than {} {}", limit, what),
              how_to_raise(option));
}

} // namespace

void check_wire(std::span<const std::byte> bytes, const ImportOptions& options) {
  constexpr int64_t kPartsPerNode = 20; // names, attributes, types: generous for any real graph
  struct Open {
    Message message;
    size_t end;
    int depth; ///< of graphs or types around it
  };
  Reader reader(bytes);
  std::vector<Open> open{{Message::model, bytes.size(), 0}};
  int64_t nodes = 0, parts = 0;
  while (!open.empty()) {
    check_stop_often();
    const Open in = open.back();
    if (reader.at() == in.end) {
      open.pop_back();
      continue;
    }
    uint64_t tag = reader.varint(in.end);
    if (tag >> 32 != 0 || tag >> 3 == 0) reader.fail("a field has an impossible number");
    auto field = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
    case 0: reader.varint(in.end); break;
    case 1: reader.skip(8, in.end); break;
    case 5: reader.skip(4, in.end); break;
    case 2: {
      uint64_t length = reader.varint(in.end);
      size_t start = reader.at();
      reader.skip(length, in.end);
      if (++parts / kPartsPerNode > options.max_nodes)
        over_limit("parts", options.max_nodes * kPartsPerNode, "max_nodes");
      Message message = part_of(in.message, field);
      if (message == Message::none) break;
      if (message == Message::node && ++nodes > options.max_nodes)
        over_limit("nodes", options.max_nodes, "max_nodes");
      bool nests = message == Message::graph || message == Message::type;
      if (nests && in.depth > options.max_nesting)
        over_limit("levels of nested graphs", options.max_nesting, "max_nesting");
      reader.rewind(start);
      open.push_back({message, start + length, in.depth + nests});
      break;
    }
    default: reader.fail("a field has an unknown form");
    }
  }
}

} // namespace tbx::importer
