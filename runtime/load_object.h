// Loading a shared object of kernels from an open file: what was checked is what is loaded.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tbx::runtime {

/// Loads it and looks up the functions. Empty with `why` where it is no whole object, does not load, or lacks
/// one. `path` is tried where /proc is not mounted.
std::shared_ptr<void> load_object(int fd, const std::filesystem::path& path,
                                  const std::vector<std::string>& functions, std::string& why);

} // namespace tbx::runtime
