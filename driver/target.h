// The machine that a model is compiled for, made from the options in one place.
#pragma once

#include <optional>
#include <string>

#include "base/isa.h"
#include "base/target.h"
#include "device/device.h"
#include "extern_kernels/problem.h"
#include "graph/passes/graph_passes.h"
#include "tensorbox/tensorbox.h"

namespace tbx::driver {

/// ModelError for an instruction set that is unknown or that this CPU has not.
Isa chosen_isa(const CompileOptions& options);
/// What single products may do with float32 operands. ModelError for a precision that is unknown or not the
/// device's.
extern_kernels::Precision chosen_precision(const CompileOptions& options);
Target target_of(const CompileOptions& options);
/// The same for another instruction set than the options', whatever else a CPU that runs it has; and for this
/// GPU, without it for every one.
Target target_of(const CompileOptions& options, Isa isa, const device::Device* gpu = nullptr);
/// What graph passes depend on: the target, and the type that `precision` keeps float32 values in there.
/// `isa`: of a package for other machines; none: this one.
graph::PassContext pass_context(const CompileOptions& options, std::optional<Isa> isa = {});
/// Why `precision` changes nothing on this target; empty where it does, or asks for nothing.
std::string precision_note(const CompileOptions& options, std::optional<Isa> isa = {});

} // namespace tbx::driver
