// TensorProto and SparseTensorProto -> Tensor.
#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <string>

#include "base/tensor.h"
#include "importer/external_data.h"
#include "importer/import.h"
#include "importer/proto_file.h"

namespace tbx::importer {

/// onnx.TensorProto.DataType -> DType; ModelError or UnsupportedError naming `what` when it is none of ours.
DType to_dtype(int32_t data_type, const std::string& what);

/// Reads tensors of one model. Every size is checked before anything is allocated or viewed.
class TensorReader {
public:
  TensorReader(const ImportOptions& options, ExternalData external, RawData raw)
      : options_(options), external_(std::move(external)), raw_(std::move(raw)) {}

  /// Raw data is read from the model, or moved out of `proto` where it is little, and not copied where its
  /// form allows it. External data is a view of the mapped file. `what` names the tensor in messages when it
  /// has no name of its own.
  std::shared_ptr<const Tensor> read(onnx::TensorProto& proto, const std::string& what);
  /// Densified.
  std::shared_ptr<const Tensor> read(onnx::SparseTensorProto& proto, const std::string& what);

private:
  Tensor from_raw(DType dtype, std::vector<int64_t> dims, onnx::TensorProto& proto, const std::string& name);

  const ImportOptions& options_;
  ExternalData external_;
  RawData raw_;
  int64_t tensors_ = 0;     ///< so far
  int64_t dense_bytes_ = 0; ///< of sparse tensors so far
};

/// The reverse, for ONNX's own inference and for writing models: raw data, sub-byte types packed again.
onnx::TensorProto to_proto(const Tensor& tensor, const std::string& name = {});

} // namespace tbx::importer
