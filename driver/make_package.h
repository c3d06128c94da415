// Make package: compiled programs -> a package file.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/all_variants.h"
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

  /// All programs of a part, compiled again for all instruction sets asked for. Throws UnsupportedError where
  /// they do not serve all inputs, but for packages for the inputs seen, and where there is none at all.
  /// `where`: "the model", or the part of it.
  void add_stage(const Specialiser& specialiser, const Coverage& all, const std::string& where);
  /// All segments, and the plan that runs them.
  void add_values(const ValueProgram& values);

  PackageReport write(const std::string& file);

private:
  /// Where the program takes something for granted of its inputs that a run may bring otherwise, one that
  /// does not is added. False where there is none.
  bool add_program(package::PackedStage& stage, const Specialiser& specialiser,
                   const Specialiser::Variant& variant, const std::string& where);
  /// Why there is none that assumes no more than that.
  std::optional<Error> try_program(package::PackedStage& stage, const Specialiser& specialiser,
                                   const Specialiser::Variant& variant, Assume assume);
  package::PackedProgram pack(const Specialiser& specialiser, const Specialiser::Variant& variant,
                              Assume assume, bool& assumes);

  /// What the package does not serve all of. Once each.
  void note(const std::string& made_for);

  CompileOptions options_;
  const bool for_inputs_seen_;
  std::vector<std::optional<Isa>> targets_; ///< best first; none: the evaluator
  std::vector<std::string> architectures_;  ///< of the device; none: packages for CPUs
  package::PackageWriter writer_;
};

} // namespace tbx::driver
