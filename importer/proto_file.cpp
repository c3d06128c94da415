#include "importer/proto_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "base/error.h"
#include "importer/wire.h"

namespace tbx::importer {

onnx::ModelProto parse_model(std::span<const std::byte> bytes, const ImportOptions& options) {
  if (bytes.size() > INT32_MAX)
    throw Error(ErrorKind::model,
                fmt::format("the model has {} bytes, more than protobuf's limit of 2 GB", bytes.size()),
                "save its weights as external data");
  TBX_MODEL(!bytes.empty(), "the model is empty");
  check_wire(bytes, options);
  onnx::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream input(&stream);
  input.SetTotalBytesLimit(INT32_MAX);
  input.SetRecursionLimit(options.max_nesting * 4 + 16); // graph in attribute in node: three messages a level
  bool whole = model.ParseFromCodedStream(&input) && input.ConsumedEntireMessage();
  if (!whole)
    throw Error(ErrorKind::model, "the bytes are not a valid ONNX model",
                "the file may be cut off, or be a Git LFS pointer or another format");
  return model;
}

} // namespace tbx::importer
