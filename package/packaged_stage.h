// PackagedStage: a part of a packaged model, with the programs that the package has for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "package/package_file.h"
#include "package/session_impl.h"
#include "runtime/bind_values.h"
#include "runtime/verify.h"

namespace tbx::package {

/// How all stages of a session run.
struct RunWith {
  std::string isa;                        ///< empty: the evaluator
  std::shared_ptr<device::Device> device; ///< null: plans for the host
  std::function<void(const std::string&)> log;
  runtime::SessionOptions session;
};

class PackagedStage : public runtime::TensorStage {
public:
  /// `what`: for errors, "the model" or "part 3 of the model". The plans are read here; a program is bound
  /// when it is first used, which must not be before its executable is verified.
  PackagedStage(std::shared_ptr<const Package> package, const PackedStage& stage, const RunWith& how,
                std::string what);
  ~PackagedStage() override;

  void run(std::span<const runtime::RunTensor> inputs, std::span<runtime::RunTensor> outputs,
           const runtime::RunOptions& options) const override;

  /// What is to be verified.
  runtime::StageParts parts() const;
  /// Throws Error (unsupported) where the package has none.
  std::shared_ptr<const Program> program_for(std::span<const runtime::RunTensor> inputs,
                                             runtime::Assume assume) const;
  /// Those bound so far.
  std::vector<std::shared_ptr<const Program>> programs() const;
  /// Binds the first program that takes any inputs, where there is one.
  void prepare() const;

private:
  struct Variant;
  const std::shared_ptr<const Package> package_;
  const RunWith how_;
  const std::string what_;
  std::vector<std::unique_ptr<Variant>> variants_;
};

} // namespace tbx::package
