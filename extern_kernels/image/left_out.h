// The error of a format whose library the build was configured without.
#pragma once

#include "extern_kernels/image/image.h"

namespace tbx::extern_kernels::image {

[[noreturn]] inline void throw_left_out(const char* format, const char* package) {
  throw Error(ErrorKind::unsupported, fmt::format("this build of tensorbox decodes no {} images", format),
              fmt::format("install {} and build again", package));
}

} // namespace tbx::extern_kernels::image
