// A fuzz target hands bytes that could come from outside to one parser. It catches what the parser's header says that it
// throws, and nothing else: another exception, a crash, a report of a sanitizer, too much memory or time is a fault.
//
// A program has several targets, and `--target=NAME` chooses one of them (libfuzzer.cpp). tools/fuzz runs them; what they
// begin with is in corpus/NAME/.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "inspectors/pickle/reading_limit.h"

namespace lockstep::fuzz {

using Target = void (*)(std::string_view bytes);

/// The targets of this program.
std::map<std::string, Target, std::less<>>& targets();

/// Is used as `const AddTarget kNotebook("notebook", read_notebook);` at file scope.
struct AddTarget {
  AddTarget(const char* name, Target target) { targets().emplace(name, target); }
};

/// What values of one input may take. Smaller than the limit on the program's memory, so that what is taken without being
/// counted shows.
inline inspect::ReadingLimit reading_limit() { return inspect::ReadingLimit(uint64_t{64} << 20); }

/// For parsers that read files: a folder of this process, which is removed at its end.
const std::string& folder();
/// Writes a file in folder(), which `name` may have folders in. Returns its path.
std::string written(const std::string& name, std::string_view bytes);

/// Stops the program where `holds` is false: a promise of the parser is not kept.
void check(bool holds, const char* promise);

}  // namespace lockstep::fuzz
