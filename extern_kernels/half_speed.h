// How fast this CPU multiplies bfloat16, measured.
#pragma once

namespace tbx::extern_kernels {

/// The CPU adds more products of bfloat16 than of float32 in the same time, by the instruction of AVX512-BF16
/// that multiplies pairs. Zen 4 adds twice as many. A Xeon of family 6 model 207 adds half as many: its
/// bfloat16 is meant for AMX, which a virtual machine may hide. Measured once in a process, in less than 0.2
/// ms.
bool has_fast_pairs();

} // namespace tbx::extern_kernels
