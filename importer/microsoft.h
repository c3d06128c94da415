// Operators of com.microsoft whose types the importer must know: what a value is decides where it runs. The
// types of all others come out of their lowering.
#pragma once

#include <onnx/defs/schema.h>

#include <map>
#include <string>

namespace tbx::importer {

/// By name.
const std::map<std::string, onnx::OpSchema>& microsoft_schemas();

/// The schema of an operator outside of ONNX, nullptr where none is needed. Lives as long as the program.
const onnx::OpSchema* find_microsoft_schema(const std::string& domain, const std::string& op);

} // namespace tbx::importer
