// Plan store: kept plans in the cache of kernels, found by what they were made from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "driver/compile.h"
#include "driver/kept_plan.h"

namespace tbx::driver {

/// Of one session, while it starts.
class PlanStore {
public:
  /// Reads the model once, for its hash, unless it is large. `options` are those of the session, limits
  /// included; `source` must live as long.
  PlanStore(const Source& source, const CompileOptions& options);
  ~PlanStore();

  /// What the session may not use a plan for, or why none can be kept; empty: nothing.
  const std::string& unused() const { return unused_; }
  /// The plan of this model, and the files that it was read from in `seen`. Nothing where there is none. A
  /// damaged one is removed, and the log is told.
  std::optional<ReadPlan> find(std::shared_ptr<importer::SeenFiles>& seen);
  /// What find() gave cannot be used.
  void drop(const std::string& why);
  /// Keeps a plan that was compiled from the files that `seen` has. Returns why it is not kept; empty: it is.
  std::string keep(PlanRecorder& recorder, const importer::SeenFiles& seen);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_; ///< null: unused
  std::string unused_;
};

} // namespace tbx::driver
