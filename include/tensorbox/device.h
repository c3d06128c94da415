// tensorbox on GPUs: memory and streams of a device, for callers whose tensors lie there. docs/gpu.md is the
// guide.
//
//   tbx::CompileOptions options;
//   options.device = "cuda";
//   auto session = tbx::Session::compile("model.onnx", options).value();
//   tbx::TensorView x{pointer, 1, {1, 3, 224, 224}, session.device()};    // memory of the GPU
//   auto outputs = session.run_async({{"x", x}}, {}, stream).value();     // on the GPU, work of the stream
//
// Streams are handles of CUDA: a cudaStream_t or CUstream, or nullptr for the default stream.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tensorbox/tensorbox.h"

namespace tbx {

/// A copy of a tensor of the host in memory of a GPU ("cuda", "cuda:1").
TBX_API Result<OutputTensor> to_device(const TensorView& tensor, const std::string& device);
/// A copy of a tensor of a run or of to_device in memory of the host, which waits for what fills it.
TBX_API Result<OutputTensor> to_host(const OutputTensor& tensor);
/// Other elements for a tensor of to_device, of the same type and shape. None: done.
TBX_API std::optional<Failure> assign(const OutputTensor& tensor, const TensorView& host);

/// A stream is about to use a tensor of a run or of to_device: it waits for what fills the tensor, and the
/// memory goes to no later run before the stream is done with what it is asked for until `owner` lets go.
TBX_API std::optional<Failure> use_on_stream(const OutputTensor& tensor, void* stream);

/// A stream of our own, whose handle is get().
TBX_API Result<std::shared_ptr<void>> make_stream(const std::string& device);
/// What `later` is asked for from now on waits for what `earlier` was asked for.
TBX_API std::optional<Failure> order_streams(const std::string& device, void* earlier, void* later);
/// Says whether the stream has done what it was asked for until now.
TBX_API Result<std::function<bool()>> mark_stream(const std::string& device, void* stream);
TBX_API std::optional<Failure> wait_for_stream(const std::string& device, void* stream);

} // namespace tbx
