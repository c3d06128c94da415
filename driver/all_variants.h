// All variants: the programs with which a package serves every input that a graph declares, where there can
// be such.
#pragma once

#include <string>
#include <vector>

#include "driver/specialiser.h"

namespace tbx::driver {

struct Coverage {
  std::vector<Specialiser::VariantPtr> variants;
  bool complete = false; ///< no input that the graph declares lacks a program
};

/// What was compiled so far.
Coverage compiled_variants(const Specialiser& specialiser);

/// Where the code depends on elements of inputs that are few and known, axes of a tensor of known rank or
/// conditions, what is compiled now for all of them; else what was compiled so far. Throws Error where the
/// compiler fails.
Coverage all_variants(const Specialiser& specialiser, const Graph& graph);

/// What a variant serves: "x float32[2, ?], axes int64[1] = {0}". `inputs` are the names of the graph's.
std::string text_of(const runtime::MadeFor& made_for, const std::vector<std::string>& inputs);

} // namespace tbx::driver
