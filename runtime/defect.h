// How the verifiers of this folder say what is wrong.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace tbx::runtime {

/// What is broken in a plan. No verifier lets it out: see first_defect.
struct Defect {
  std::string what;
};

template <class... A> void require(bool sound, fmt::format_string<A...> f, A&&... a) {
  if (!sound) throw Defect{fmt::format(f, std::forward<A>(a)...)};
}

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
