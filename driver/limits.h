// Limits: what a model may ask for, by the options of the public API.
#pragma once

#include <span>

#include "base/budget.h"
#include "importer/import.h"
#include "tensorbox/tensorbox.h"

namespace tbx::driver {

struct Limit {
  const char* name; ///< of the option in C++ and Python; with dashes on the command line
  int64_t CompileOptions::*value;
  int64_t usual, untrusted; ///< values where the option is 0; 0: none
  const char* unit;
};
/// All of them; docs/security.md has the same table.
std::span<const Limit> limits();

/// The options with every limit set to the value that holds. Throws Error (model) for values that cannot be.
CompileOptions with_limits(CompileOptions options);

/// Sets the limits of an import; those that `options` has no value for stay.
void set_limits(ImportOptions& to, const CompileOptions& options);

/// Limits of time and memory hold for what this thread does with a model until the end of the scope.
class Loading : public LoadScope {
public:
  explicit Loading(const CompileOptions& options)
      : LoadScope(options.load_time_limit_ms, options.load_memory) {}
};

} // namespace tbx::driver
