#include "importer/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
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
  explicit Reader(ModelBytes& bytes) : bytes_(bytes) {}
  size_t at() const { return at_; }

  uint64_t varint(size_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end) fail("a number is cut off");
      auto byte = static_cast<uint8_t>(next());
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
  std::byte next() { return bytes_.from(at_++).front(); }

  ModelBytes& bytes_;
  size_t at_ = 0;
};

[[noreturn]] void over_limit(const char* what, int64_t limit, const char* option) {
  throw Error(ErrorKind::model, fmt::format("the model has more than {} {}", limit, what),
              how_to_raise(option));
}

constexpr uint32_t kRawData = 9, kTensorText = 12; ///< fields of a tensor

/// What there is once, though the wire may have it again: protobuf then takes the last, or merges both.
bool is_single(Message message, uint32_t field) {
  return (message == Message::tensor && field == kRawData) ||
         (message == Message::attribute && (field == 5 || field == 22)) ||
         (message == Message::sparse_tensor && (field == 1 || field == 2));
}

/// Copies the model but for the raw data that is left where it lies. What goes over as it is goes in one
/// piece.
class Copier {
public:
  Copier(ModelBytes& bytes, Skeleton& to) : bytes_(bytes), to_(to) {}

  /// The message whose contents begin at `at`, behind its length. Lengths are written when they are known, as
  /// numbers of five bytes.
  size_t open(size_t behind_tag, size_t at) {
    copy_until(behind_tag);
    const size_t place = to_.text.size();
    to_.text.append(kLength, '\0');
    begin_ = at;
    return place;
  }
  void close(size_t place, size_t end) {
    copy_until(end);
    size_t length = to_.text.size() - place - kLength;
    for (size_t i = 0; i < kLength; ++i, length >>= 7)
      to_.text[place + i] = static_cast<char>((length & 0x7f) | (i + 1 < kLength ? 0x80 : 0));
  }
  void leave_out(size_t from, size_t to) {
    copy_until(from);
    begin_ = to;
  }
  void leave(size_t tag, size_t from, size_t to) {
    leave_out(tag, to);
    const std::string text = to_.mark + std::to_string(to_.places.size());
    to_.places.push_back({from, to - from});
    to_.text += static_cast<char>(kTensorText << 3 | 2);
    to_.text += static_cast<char>(text.size());
    to_.text += text;
  }
  void copy_until(size_t end) {
    while (begin_ < end) {
      const std::span<const std::byte> some = bytes_.from(begin_);
      const size_t count = std::min(some.size(), end - begin_);
      to_.text.append(reinterpret_cast<const char*>(some.data()), count);
      begin_ += count;
    }
  }

private:
  static constexpr size_t kLength = 5;
  ModelBytes& bytes_;
  Skeleton& to_;
  size_t begin_ = 0; ///< of what was not copied yet
};

/// One way through all messages of a model, which counts what limits are for.
class Walk {
public:
  Walk(ModelBytes& bytes, const ImportOptions& options, Skeleton* to)
      : size_(bytes.size()), options_(options), reader_(bytes), open_{{Message::model, size_, 0}} {
    if (to) copier_.emplace(bytes, *to);
  }

  /// False where something that there is once is there again, which is for protobuf to join: the copy is of
  /// no use then.
  bool run() {
    while (!open_.empty()) {
      check_stop_often();
      const Open& in = open_.back();
      if (reader_.at() < in.end) {
        read_field();
        continue;
      }
      if (copier_ && open_.size() > 1) copier_->close(in.length, in.end);
      open_.pop_back();
    }
    if (copier_) copier_->copy_until(size_);
    return once_;
  }

private:
  struct Open {
    Message message;
    size_t end;
    int depth;         ///< of graphs or types around it
    size_t length = 0; ///< where the copy has its length
    uint32_t seen = 0; ///< fields of those that there are once
  };

  void read_field() {
    const size_t begin = reader_.at(), end = open_.back().end;
    const uint64_t tag = reader_.varint(end);
    const size_t behind_tag = reader_.at();
    if (tag >> 32 != 0 || tag >> 3 == 0) reader_.fail("a field has an impossible number");
    switch (tag & 7) {
    case 0: reader_.varint(end); break;
    case 1: reader_.skip(8, end); break;
    case 2: read_part(static_cast<uint32_t>(tag >> 3), begin, behind_tag); break;
    case 5: reader_.skip(4, end); break;
    default: reader_.fail("a field has an unknown form");
    }
  }

  /// A field of known length: a message is opened, all else is passed over.
  void read_part(uint32_t field, size_t begin, size_t behind_tag) {
    constexpr int64_t kPartsPerNode = 20; // names, attributes, types: generous for any real graph
    Open& in = open_.back();
    const uint64_t length = reader_.varint(in.end);
    const size_t start = reader_.at();
    reader_.skip(length, in.end);
    if (++parts_ / kPartsPerNode > options_.max_nodes)
      over_limit("parts", options_.max_nodes * kPartsPerNode, "max_nodes");
    if (is_single(in.message, field)) {
      once_ &= (in.seen >> field & 1) == 0;
      in.seen |= uint32_t{1} << field;
    }
    const Message message = part_of(in.message, field);
    if (message == Message::none) {
      if (!copier_ || in.message != Message::tensor) return;
      if (field == kRawData && length >= kLargeRawData) copier_->leave(begin, start, start + length);
      if (field == kTensorText) copier_->leave_out(begin, start + length);
      return;
    }
    if (message == Message::node && ++nodes_ > options_.max_nodes)
      over_limit("nodes", options_.max_nodes, "max_nodes");
    const bool nests = message == Message::graph || message == Message::type;
    if (nests && in.depth > options_.max_nesting)
      over_limit("levels of nested graphs", options_.max_nesting, "max_nesting");
    reader_.rewind(start);
    open_.push_back(
        {message, start + length, in.depth + nests, copier_ ? copier_->open(behind_tag, start) : 0});
  }

  const size_t size_;
  const ImportOptions& options_;
  Reader reader_;
  std::optional<Copier> copier_;
  std::vector<Open> open_;
  int64_t nodes_ = 0, parts_ = 0;
  bool once_ = true;
};

} // namespace

void check_wire(ModelBytes& bytes, const ImportOptions& options) { Walk(bytes, options, nullptr).run(); }

std::optional<Skeleton> skeleton_of(ModelBytes& bytes, const ImportOptions& options) {
  Skeleton skeleton;
  // Nobody who writes a model knows it: no text of a file passes for it.
  std::random_device random;
  for (int i = 0; i < 4; ++i) skeleton.mark += fmt::format("{:08x}", random());
  if (!Walk(bytes, options, &skeleton).run()) return std::nullopt;
  return skeleton;
}

} // namespace tbx::importer
