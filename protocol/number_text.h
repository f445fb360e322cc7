// Numbers as text, in one library: the standard library's tables for them are large.
#pragma once
#include <string>

namespace lockstep {

/// Returns the shortest text that reads back as the same number; as a float where `digits` are those of one.
std::string shortest(double value, int digits = 17);
std::string shortest(long double value);

}  // namespace lockstep
