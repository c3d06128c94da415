// Tensors in memory of a device, as callers hold them (include/tensorbox/device.h).
#pragma once

#include <memory>

#include "device/device.h"
#include "package/guarded.h"
#include "runtime/device_memory.h"
#include "runtime/session.h"

namespace tbx::package {

[[noreturn]] void throw_not_async();

/// Makes a run work of a caller's stream. ModelError where no device is.
void set_stream(runtime::RunOptions& options, const device::Device* device, void* stream, bool async);

/// What a run made on the host, on the device: in memory of the caller where `to` has any.
void to_device(const std::shared_ptr<device::Device>& device, const runtime::RunTensor& made,
               runtime::RunTensor& to);
OutputTensor to_device(const std::shared_ptr<device::Device>& device, OutputTensor made,
                       const TensorView& to);

} // namespace tbx::package
