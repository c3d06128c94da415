// A mark that files do not have: nodes whose caches the session keeps (option state) append to them.
#pragma once

namespace tbx {

/// An attribute of GroupQueryAttention, 1 where past_key and past_value are states.
inline constexpr const char* kKeptPast = "tbx_kept_past";

} // namespace tbx
