// AttributeProto <-> Attribute.
#pragma once

#include <onnx/onnx_pb.h>

#include "graph/graph.h"
#include "importer/types.h"

namespace tbx::importer {

/// Reads the tensors of attributes; the builder caches them, as function bodies are read once per call.
class AttributeTensors {
public:
  virtual ~AttributeTensors() = default;
  virtual std::shared_ptr<const Tensor> read(onnx::TensorProto& proto, const std::string& what) = 0;
  virtual std::shared_ptr<const Tensor> read(onnx::SparseTensorProto& proto, const std::string& what) = 0;
};

/// Every form but graphs, which need their surroundings. Sparse tensors are made dense.
Attribute to_attribute(onnx::AttributeProto& proto, AttributeTensors& tensors, Symbols& symbols,
                       const ImportOptions& options);

/// The reverse, again without graphs: the `type` of the result says UNDEFINED for them.
onnx::AttributeProto to_proto(const std::string& name, const Attribute& attribute, const DimNamer& dim_name);

} // namespace tbx::importer
