// Native module: kernels of shared objects that lie in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/module.h"

namespace tbx::package {

class NativeModule : public runtime::Module {
public:
  /// Throws BackendError where an object cannot be loaded.
  explicit NativeModule(const std::vector<std::span<const std::byte>>& objects);
  runtime::Kernel kernel(const std::string& name) const override;

private:
  std::vector<std::shared_ptr<void>> handles_;
};

} // namespace tbx::package
