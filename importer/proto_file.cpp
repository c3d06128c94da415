#include "importer/proto_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <string_view>

#include "base/error.h"
#include "importer/wire.h"

namespace tbx::importer {
namespace {

using namespace std::string_view_literals;

/// What a file is that is no model, for those that say so at their beginning, and what to do then. No
/// protobuf message begins so; the zero is of the offset at the beginning of a flat buffer.
struct OtherFormat {
  size_t at;
  std::string_view magic;
  const char *what, *hint;
};
constexpr OtherFormat kOtherFormats[] = {
    {0, "version https://git-lfs", "a Git LFS pointer, not the model", "`git lfs pull` fetches the model"},
    {3, "\0ORTM"sv, "a model in ONNX Runtime's own format", "use the ONNX file it was made from"},
    {3, "\0TFL3"sv, "a TensorFlow Lite model", "tf2onnx converts it to ONNX"},
    {0, "PK\x03\x04", "a zip archive, as PyTorch and Keras save models",
     "export it to ONNX (torch.onnx.export)"},
    {0, "\x89HDF", "an HDF5 file, as Keras saves models", "tf2onnx converts it to ONNX"},
    {0, "GGUF", "a GGUF model", "export it to ONNX"},
    {0, "<?xml", "an XML file, as OpenVINO saves models", "use the ONNX file it was made from"},
    {0, "\x93NUMPY", "a numpy array", "a model is needed here"},
};

/// Throws a better error where the bytes are plainly of another format.
void name_other_format(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const OtherFormat& f : kOtherFormats)
    if (text.size() > f.at && text.substr(f.at).starts_with(f.magic))
      throw Error(ErrorKind::model, fmt::format("this is {}", f.what), f.hint);
}

} // namespace

namespace {

void check_beginning(ModelBytes& bytes, const ImportOptions& options) {
  check_model_bytes(bytes.size(), options);
  if (bytes.size() > INT32_MAX)
    throw Error(ErrorKind::model,
                fmt::format("the model has {} bytes, more than protobuf's limit of 2 GB", bytes.size()),
                "save its weights as external data");
  TBX_MODEL(bytes.size() > 0, "the model is empty");
  name_other_format(bytes.from(0));
}

onnx::ModelProto parse(std::string_view bytes, const ImportOptions& options) {
  onnx::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream input(&stream);
  input.SetTotalBytesLimit(INT32_MAX);
  input.SetRecursionLimit(options.max_nesting * 4 + 16); // graph in attribute in node: three messages a level
  bool whole =
      bytes.size() <= INT32_MAX && model.ParseFromCodedStream(&input) && input.ConsumedEntireMessage();
  if (!whole)
    throw Error(ErrorKind::model, "the bytes are not a valid ONNX model",
                "the file may be cut off, or be of another format");
  TBX_MODEL(model.has_graph(), "the model has no graph: is it an ONNX file?");
  return model;
}

} // namespace

onnx::ModelProto parse_model(std::span<const std::byte> bytes, const ImportOptions& options) {
  ModelBytes source(bytes);
  check_beginning(source, options);
  check_wire(source, options);
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, options);
}

ParsedModel read_model(ModelBytes bytes, const ImportOptions& options) {
  check_beginning(bytes, options);
  std::optional<Skeleton> skeleton = skeleton_of(bytes, options);
  if (!skeleton) {
    const auto all = bytes.copy(0, bytes.size());
    return {parse({reinterpret_cast<const char*>(all.get()), bytes.size()}, options), {}};
  }
  onnx::ModelProto model = parse(skeleton->text, options);
  return {std::move(model),
          RawData(std::move(bytes), std::move(skeleton->places), std::move(skeleton->mark))};
}

std::optional<RawData::Place> RawData::place_of(const onnx::TensorProto& tensor) const {
  if (mark_.empty() || !tensor.doc_string().starts_with(mark_)) return std::nullopt;
  return places_.at(std::stoul(tensor.doc_string().substr(mark_.size())));
}

std::shared_ptr<const std::byte> RawData::copy(const Place& place) {
  return bytes_->copy(place.at, place.bytes);
}

} // namespace tbx::importer
