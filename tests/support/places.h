// Where the tests find their files.
#pragma once

#include <string>

namespace tbx::test {

std::string source_dir();
/// Of the libraries with custom operators.
std::string operators_dir();

} // namespace tbx::test
