// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>

namespace tbx {

/// Writes beside `path`, onto the disk, and renames, so that readers see the old file or the whole new one. A
/// file that is mapped stays readable while another takes its name. What is there and no file, such as a
/// device, is not replaced. `write` returns false when it cannot, with errno. Throws BackendError.
void write_whole(const std::filesystem::path& path, const std::function<bool(int fd)>& write);

bool write_at(int fd, const std::byte* bytes, int64_t size, int64_t offset);

} // namespace tbx
