// com.microsoft AttnLSTM: an LSTM that sees, beside its input, what it attended to in a memory one step
// before (Bahdanau's attention). It runs through a body of ONNX operators.
#pragma once

#include <onnx/defs/schema.h>

namespace tbx::importer {

/// The schema with the operator's body. Behaves as ONNX Runtime's.
onnx::OpSchema make_attn_lstm();

} // namespace tbx::importer
