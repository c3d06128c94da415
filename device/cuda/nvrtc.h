// NVRTC: CUDA C++ text -> machine code of one architecture.
#pragma once

#include <string>
#include <string_view>

namespace tbx::device::cuda {

/// What changes the result beside text and architecture: version of the compiler and its options.
std::string nvrtc_identity();

/// A cubin for "sm_90" and the like. Throws BackendError with the compiler's messages.
std::string compile(std::string_view source, std::string_view architecture);

} // namespace tbx::device::cuda
