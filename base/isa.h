// Instruction sets that kernels are compiled for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tbx {

/// In order: a CPU that runs one runs those before it.
enum class Isa : uint8_t { sse, avx2, avx512 };

/// Of its widest vectors.
constexpr int vector_bytes(Isa isa) { return isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 16; }

const char* name_of(Isa isa);
std::optional<Isa> isa_of_name(std::string_view name);
/// The best that this CPU runs.
Isa cpu_isa();
/// The same, or what TBX_ISA says (ModelError when the CPU lacks it).
Isa host_isa();

} // namespace tbx
