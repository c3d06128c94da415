// Apart from all others: what knows its folder is compiled anew in another one.
#include "tests/support/places.h"

namespace tbx::test {

std::string source_dir() { return TBX_SOURCE_DIR; }
std::string operators_dir() { return TBX_OPERATORS_DIR; }

} // namespace tbx::test
