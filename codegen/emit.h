// Emit: KernelProgram -> C++ or CUDA source text, deterministic. Fifth stage.
#pragma once

#include <string>
#include <vector>

#include "base/isa.h"
#include "base/target.h"
#include "ir/kernel.h"

namespace tbx::codegen {

/// Threads that work on one task together.
enum class Team : uint8_t { thread, warp, block };

/// A kernel in source form. Two kernels of equal text share one function.
struct EmittedKernel {
  std::string function;     ///< extern "C" name: "k_" + hash of the body text
  std::string text;         ///< complete definition of the function, needs the prelude before it
  ir::SymInts size_args;    ///< evaluated by the runtime and passed as `sizes`
  ir::SymInt tasks;         ///< independent tasks: the kernel runs any sub-range [begin, end) of [0, tasks)
  ir::SymInt scratch_bytes; ///< per-thread scratch the kernel needs (0: none)
  /// CUDA: scratch that all teams have together, which holds zeros when the kernel starts: a start for
  /// [words, 0) puts them into so many words of 8 bytes.
  ir::SymInt state_bytes = 0;
  std::vector<int> check_origins; ///< SymNode::origin of check number 1 + i
  double cost_per_task =
      0; ///< estimated nanoseconds of one task on one thread, at size hints (grain of the runtime)
  Team team = Team::thread; ///< CUDA: what takes a task
  int block_threads = 128;  ///< CUDA: threads that suit the kernel, a multiple of 32
  int shared_bytes = 0;     ///< CUDA: dynamic shared memory that a block needs
  /// CUDA: may start, on GPUs that can (sm_90), before the kernel before it ends, with few blocks
  /// (device::kMostEarlyBlocks): it waits for that itself.
  bool overlaps = false;
};

/// The kernel as a function of runtime/abi.h's type KernelFunction, in the instructions of the target.
EmittedKernel emit_cpp(const ir::KernelProgram& kernel, const Target& target = {});
/// The same kernel as a CUDA C++17 function for sm_75 and newer, for NVRTC or nvcc with --fmad=false:
///   extern "C" __global__ void name(<buffers>, <sizes>, i64 begin, i64 end, void* scratch, i64* error)
/// <buffers> are pointers to address 0 of the kernel's buffers that are not row-local, in order; <sizes> an
/// i64 for each of size_args. Any one-dimensional grid runs all tasks of [begin, end); blocks have
/// block_threads threads. scratch_bytes are needed per team, or state_bytes
/// for all, of a kernel whose tasks are all in one start. *error, 0 at first, becomes the number of a
/// failed index check, and the two numbers behind it what runtime/abi.h has in scratch.
EmittedKernel emit_cuda(const ir::KernelProgram& kernel, const Gpu& gpu = {});

/// The text every translation unit begins with: vector types, loads and stores with tails, conversions,
/// inlined math.
std::string prelude_cpp(Isa isa);
std::string prelude_cuda();

} // namespace tbx::codegen
