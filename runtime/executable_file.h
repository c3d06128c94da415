// Executable file: an executable as bytes and back. The base of saved models: one version, parts with
// checksums, constants aligned so that they can be used where the file is mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace tbx::runtime {

/// Needs a verified executable; equal ones give equal bytes. UnsupportedError for an operator of a user's
/// library, which is code that lies elsewhere.
std::string to_bytes(const Executable& executable);

/// The executable, verified. Its constants lie in `bytes` (at addresses of 64-byte alignment when `bytes`
/// does), which `owner` keeps. Throws Error (model) that says what is wrong: no executable, another version,
/// a part that is cut off or changed, or contents that are not sound.
Executable from_bytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

} // namespace tbx::runtime
