// The schemas of the operators that ONNX defines. ONNX's own registry makes all of them, in every version,
// when the first is asked for, which takes longer than importing most models. Here each is made when somebody
// asks for it.
#pragma once

#include <onnx/defs/schema.h>

#include <limits>
#include <string>

namespace tbx::importer {

constexpr int kNewestVersion = std::numeric_limits<int>::max();

/// The newest schema up to `version`, nullptr where there is none. Lives as long as the program.
const onnx::OpSchema* find_onnx_schema(const std::string& domain, const std::string& op,
                                       int version = kNewestVersion);

/// The same for functions of ONNX's that look for schemas themselves.
const onnx::ISchemaRegistry& onnx_schemas();

} // namespace tbx::importer
