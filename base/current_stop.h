// What ends the work that a thread does: for those who hand it on to other threads.
#pragma once

namespace tbx {

struct Stop;

/// What check_stop() of this thread looks at; null: nothing. It lives as long as the call that looks for it.
const Stop* current_stop();

} // namespace tbx
