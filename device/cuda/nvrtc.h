// NVRTC: CUDA C++ text -> machine code.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tbx::device::cuda {

/// Machine code (a cubin) of the text for an architecture ("sm_90"). Throws BackendError with the compiler's
/// messages, or when there is no NVRTC.
std::string compile(std::string_view source, std::string_view architecture);

/// The same of several texts, by as many threads as the machine has, as one binary.
std::string compile_all(std::span<const std::string> sources, std::string_view architecture);
/// The machine code in a binary: one, or what compile_all joined.
std::vector<std::string_view> parts_of(std::string_view binary);

/// Version and options of the compiler: names what it makes.
std::string nvrtc_identity();

/// Where machine code of library kernels is kept from process to process.
class BinaryCache {
public:
  virtual ~BinaryCache() = default;
  virtual std::optional<std::string> find(const std::string& source, const std::string& architecture) = 0;
  virtual void keep(const std::string& source, const std::string& architecture,
                    const std::string& binary) = 0;
};
/// For all that compile from now on; nullptr: none.
void set_binary_cache(std::shared_ptr<BinaryCache> cache);
std::shared_ptr<BinaryCache> binary_cache();
/// compile(), or what the cache has.
std::string compile_cached(const std::string& source, const std::string& architecture);

} // namespace tbx::device::cuda
