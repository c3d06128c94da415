// What the public API says of a model: inputs, outputs, metadata.
#pragma once

#include "importer/import.h"
#include "runtime/executable.h"
#include "runtime/value_plan.h"
#include "tensorbox/tensorbox.h"

namespace tbx::driver {

TensorInfo info_of(const runtime::SignatureEntry& entry);
TensorInfo info_of(const runtime::ValueEntry& entry);
TensorInfo info_of(const InputDefault& input);
ModelMetadata metadata_of(const Graph& graph);

} // namespace tbx::driver
