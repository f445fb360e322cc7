// What the code of a cell consists of: its functions, and what it uses from other cells. It shows in what the code of
// two ranks differs.
#pragma once
#include <link.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::inspect {

struct CellCode {
  std::map<std::string, std::string> uses;  // "scale(double)": "cell 3", which defines it on this rank
  std::map<std::string, std::string> functions;  // "train(int)": size and hash of its code
  std::map<std::string, std::string> defines;  // functions and variables: "net": "cell 3", as in its symbol
};

void to_json(nlohmann::json& json, const CellCode& code);
void from_json(const nlohmann::json& json, CellCode& code);

/// Returns objects and functions whose code still uses an older definition of a name: "net was defined again in cell 4;
/// optimizer, step are older and still use that of cell 1: define them again, too". Searches for users of an older
/// `name`; with `itself`, for older definitions that `name` was made with. Empty if there are none, or if no cell has
/// defined the name. Local.
std::string older_definitions(const std::string& name, bool itself);

/// Returns the header of the object whose memory begins at `begin`, where a cell was loaded; nullptr: it was unloaded. Its
/// memory may be part of another object's, which is the one that the dynamic loader knows. Local.
const ElfW(Ehdr) * header_of_cell(uintptr_t begin);

/// `cell` is its number in the collective log. Empty if this process has not loaded the cell. Names are those that
/// __cxa_demangle gives, which in a session leaves out the numbers of cells. Local.
CellCode code_of_cell(int64_t cell);

}  // namespace lockstep::inspect
