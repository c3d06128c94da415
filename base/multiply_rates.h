// How fast this CPU multiplies, measured: what its flags do not say.
#pragma once

namespace tbx {

/// The CPU adds more products of bfloat16 than of float32 in the same time, by the instruction of AVX512-BF16
/// that multiplies pairs. Zen 4 adds twice as many. A Xeon of family 6 model 207 adds half as many: its
/// bfloat16 is meant for AMX, which a virtual machine may hide. Measured once in a process, in less than
/// 0.2 ms.
bool has_fast_pairs();

/// The CPU multiplies and adds vectors of 512 bits at the rate of those of 256: twice as many floats in the
/// same time. So do Xeons with two units of AVX-512; Zen 4 takes two turns for each. Measured once.
bool has_wide_multipliers();

} // namespace tbx
