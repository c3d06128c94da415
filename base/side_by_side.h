// Pieces of work that wait for each other in nothing, on threads of their own.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <vector>

namespace tbx {

/// Calls work(i) once for each i below `count`, on as many threads as the machine has, the caller's among
/// them; where no more can be started, fewer do it. Gives what was thrown, by i.
std::vector<std::exception_ptr> side_by_side(size_t count, const std::function<void(size_t)>& work);
/// The first that was thrown is thrown.
void rethrow_first(const std::vector<std::exception_ptr>& thrown);

} // namespace tbx
