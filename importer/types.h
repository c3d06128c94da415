// TypeProto <-> ValueType, and the dimension symbols of one import.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "graph/graph.h"
#include "importer/import.h"

namespace tbx::importer {

/// Names dimensions that are not numbers; an empty name leaves the dimension open.
using DimNamer = std::function<std::string(ir::SymInt)>;

/// Between ONNX's dimension names and symbols of the Context.
///
/// ONNX's inference treats two dimensions as equal when their dim_param strings are equal. A dimension it
/// cannot derive gets a string of ours, which starts with a control character so that no model can write it.
class Symbols {
public:
  explicit Symbols(ir::Context& context) : context_(context) {}

  /// A dimension name of a model input: the symbol callers see and bind.
  ir::SymInt of_input(const std::string& dim_param);
  bool is_input(const std::string& dim_param) const { return inputs_.contains(dim_param); }
  /// What a dim_param in an inferred type means.
  ir::SymInt of(const std::string& dim_param);
  /// The dim_param of a new symbol, of which nothing is known.
  std::string fresh(const std::string& hint = "u");
  /// The dim_param that stands for an expression.
  std::string name_for(ir::SymInt e);
  DimNamer namer() {
    return [this](ir::SymInt e) { return name_for(e); };
  }

private:
  ir::Context& context_;
  std::unordered_map<std::string, ir::SymInt> inputs_, internal_;
  std::unordered_map<ir::SymInt, std::string> names_;
};

/// Needs every dimension to have a value or a name (name_unknown_dims).
ValueType to_value_type(const onnx::TypeProto& type, Symbols& symbols);
onnx::TypeProto to_type_proto(const ValueType& type, const DimNamer& dim_name);

/// Gives dimensions without value and name a fresh symbol.
void name_unknown_dims(onnx::TypeProto& type, Symbols& symbols);

/// A type as the file declares it, made safe to work with: ModelError on element types that do not exist;
/// negative dimensions, empty names and names with control characters become unknown; `dim_overrides` are
/// applied.
onnx::TypeProto declared_type(const onnx::TypeProto& type, const ImportOptions& options,
                              const std::string& what);

/// What is known of a value: the inferred type, completed by the declared one where that knows more. Declared
/// shapes are often stale (tools change a batch size and leave them), so what was inferred always wins, and
/// names never make two dimensions equal. False when kind or element type contradict each other.
bool complete(onnx::TypeProto& inferred, const onnx::TypeProto& declared);

/// Of a value that is made as one type and declared as another, both known.
Error declared_otherwise(const std::string& output, const onnx::TypeProto& declared,
                         const onnx::TypeProto& made);

/// True when kind and element types are known, whatever the shape.
bool is_known(const onnx::TypeProto& type);
/// True when it is a tensor whose every dimension is a number.
bool is_static(const onnx::TypeProto& type);

onnx::TypeProto tensor_type(const Tensor& tensor);

} // namespace tbx::importer
