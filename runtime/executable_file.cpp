#include "runtime/executable_file.h"

#include "runtime/executable_fields.h"

namespace tbx::runtime {

std::string to_bytes(const Executable& executable, TensorPool& tensors) {
  return archive::write(executable, tensors);
}

Executable from_bytes(std::span<const std::byte> bytes, TensorMemory tensors) {
  return archive::read<Executable>(bytes, std::move(tensors));
}

} // namespace tbx::runtime
