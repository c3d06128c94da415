// NextTier: compiles the kernels of a program that runs in the evaluator meanwhile (CompileOptions::tiered).
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/background_task.h"
#include "driver/compile.h"

namespace tbx::driver {

class NextTier {
public:
  struct Outcome {
    std::optional<Compiled> compiled;
    std::string failure; ///< where it is not
    std::vector<std::string> notes;
  };

  /// nullptr where the system gives no thread.
  static std::unique_ptr<NextTier> start(Compiled::Later compile);

  /// What came of it, for who asks first when it is there; else nullptr. In a process that was forked
  /// meanwhile it begins anew.
  std::unique_ptr<Outcome> take();

private:
  explicit NextTier(Compiled::Later compile) : compile_(std::move(compile)) {}
  bool begin();
  void work(const std::function<bool()>& stopped);

  const Compiled::Later compile_;
  std::mutex mutex_;
  std::unique_ptr<Outcome> outcome_;
  std::unique_ptr<BackgroundTask> task_; ///< ends before the rest
};

/// Of a handler of signals: compilers are stopped and their files removed, before the process ends. Exported,
/// not public: for the command.
TBX_API void stop_compilers() noexcept;

} // namespace tbx::driver
