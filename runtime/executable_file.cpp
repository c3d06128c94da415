#include "runtime/executable_file.h"

#include "runtime/executable_fields.h"

namespace tbx::runtime {

std::string to_bytes(const Executable& executable, TensorPool& tensors) {
  return archive::write(executable, tensors);
}

Executable from_bytes(std::span<const std::byte> bytes, TensorMemory tensors) {
  auto executable = archive::read<Executable>(bytes, std::move(tensors));
  for (const auto& constant : executable.constants)
    if (!constant) archive::damaged("a constant is missing");
  if (std::string defect = defect_of(executable); !defect.empty()) archive::damaged(defect.c_str());
  return executable;
}

} // namespace tbx::runtime
