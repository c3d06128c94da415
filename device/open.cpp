// Devices by name.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"
#include "device/fake/fake_device.h"

namespace tbx::device {

std::shared_ptr<Device> open(std::string_view name) {
  int number = 0;
  bool known = name == "cuda";
  if (name.starts_with("cuda:")) {
    const std::string_view digits = name.substr(5);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    known = error == std::errc() && end == digits.data() + digits.size() && number >= 0;
  }
  if (!known)
    throw Error(ErrorKind::model, fmt::format("'{}' is no device", name),
                "devices are \"cpu\", \"cuda\" and \"cuda:<number>\"");
  static std::mutex mutex;
  static std::map<std::pair<bool, int>, std::weak_ptr<Device>> opened;
  std::scoped_lock lock(mutex);
  const char* asked = std::getenv("TBX_FAKE_CUDA");
  const bool fake = asked && std::string_view(asked) == "1";
  std::weak_ptr<Device>& last = opened[{fake, number}];
  std::shared_ptr<Device> device = last.lock();
  if (!device) last = device = fake ? make_fake_device(number) : make_cuda_device(number);
  return device;
}

} // namespace tbx::device
