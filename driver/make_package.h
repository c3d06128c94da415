// Make package: compiled programs -> a package file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/compile.h"
#include "driver/specialiser.h"
#include "driver/value_compile.h"
#include "package/package_file.h"

namespace tbx::driver {

class PackageMaker {
public:
  /// Throws Error where these options make nothing that a package can hold.
  PackageMaker(const CompileOptions& options, const PackageOptions& how);

  package::PackageIndex index; ///< the signature and what else is not compiled is the caller's to set

  /// A variant, compiled again for all instruction sets asked for. Where the program takes something for
  /// granted of its inputs that a run may bring otherwise, one that does not is added, where there can be
  /// one.
  void add_program(package::PackedStage& stage, const Specialiser& specialiser,
                   const Specialiser::Variant& variant);
  /// All segments with what was compiled for them, and the plan that runs them. Throws UnsupportedError for a
  /// segment of which nothing is compiled.
  void add_values(const ValueProgram& values);

  PackageReport write(const std::string& file);

private:
  package::PackedProgram pack(const Specialiser& specialiser, const Specialiser::Variant& variant,
                              Assume assume, bool& assumes);

  CompileOptions options_;
  std::vector<std::optional<Isa>> targets_; ///< best first; none: the evaluator
  package::PackageWriter writer_;
};

} // namespace tbx::driver
