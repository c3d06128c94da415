// Names of tensors as names of members of a zip archive.
#pragma once

#include <string>

namespace tbx::tools {

/// A path below the folder that an archive is unpacked in, whatever the tensor is called: a leading slash,
/// "." and ".." as parts, backslashes, drives, control characters and bytes that are no UTF-8 are written as
/// in URLs (%2F). Different names stay different.
std::string member_name(const std::string& tensor);
/// The tensor's name again.
std::string tensor_name(const std::string& member);

} // namespace tbx::tools
