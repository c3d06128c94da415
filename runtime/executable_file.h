// Executable file: an executable as bytes and back, a part of a package (package/package_file.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/tensor_pool.h"
#include "runtime/executable.h"

namespace tbx::runtime {

/// Needs a verified executable; equal ones give equal bytes. The elements of its constants go into `tensors`.
/// UnsupportedError for an operator of a user's library, which is code that lies elsewhere.
std::string to_bytes(const Executable& executable, TensorPool& tensors);

/// The executable as it was written, not yet verified (runtime/verify.h). Its constants are views of
/// `tensors`. Throws Error (model) that says what is wrong with the bytes.
Executable from_bytes(std::span<const std::byte> bytes, TensorMemory tensors);

} // namespace tbx::runtime
