// Memory of the fake device: pages without access while no work runs, guard pages around them, and guard
// bytes up to the page's end.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "device/device.h"

namespace tbx::device::fake {

class Guarded;

/// All memory of one fake device.
class Arena {
public:
  /// While it lives, the device's memory can be read and written.
  class Access {
  public:
    explicit Access(Arena& arena);
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

  private:
    Arena& arena_;
  };

  /// As of Device.
  std::string defect_of(const void* data, size_t bytes);

private:
  friend class Guarded;
  std::recursive_mutex mutex_;
  std::set<Guarded*> blocks_;
  int depth_ = 0;
};

class Guarded final : public Memory {
public:
  /// Throws BackendError when there is no room.
  Guarded(std::shared_ptr<Arena> arena, size_t bytes);
  /// Ends the process with a message when somebody wrote behind the end: there is nobody left to throw to.
  ~Guarded() override;

private:
  friend class Arena::Access;
  void set_access(bool open) const;
  std::shared_ptr<Arena> arena_;
  char* map_ = nullptr;
  size_t map_bytes_ = 0;
};

} // namespace tbx::device::fake
