// What trees have to be before anybody walks them.
#pragma once

#include <cstdint>
#include <span>

namespace tbx::extern_kernels {

/// ModelError where a way down from a root leads in a circle. A leaf is its own child.
void check_acyclic(std::span<const int32_t> roots, std::span<const int32_t> yes, std::span<const int32_t> no);

} // namespace tbx::extern_kernels
