// What runtime/verify.h looks through, and how it says what is wrong.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "runtime/verify.h"

namespace tbx::runtime {

/// What is broken in a plan. No verifier lets it out: see first_defect.
struct Defect {
  std::string what;
};

template <class... A> void require(bool sound, fmt::format_string<A...> f, A&&... a) {
  if (!sound) throw Defect{fmt::format(f, std::forward<A>(a)...)};
}

/// Throws the first defect.
void require_sound(const Executable& executable);
/// The plan and those of its bodies.
void require_sound(const ValuePlan& plan, std::span<const StageParts> stages);

/// What `verify` throws first; "" where all is sound.
template <class Verify> std::string first_defect(Verify&& verify) {
  try {
    verify();
    return "";
  } catch (Defect& d) {
    return std::move(d.what);
  }
}

} // namespace tbx::runtime
