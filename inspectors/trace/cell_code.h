// What the code of a cell consists of: its functions, and what it uses of other cells. To say of two ranks whose code
// differs in what.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::inspect {

struct CellCode {
  std::map<std::string, std::string> uses;  // "scale(double)": "cell 3", where this rank has it from
  std::map<std::string, std::string> functions;  // "train(int)": a mark of its code
  std::map<std::string, std::string> defines;  // functions and variables: "net": "cell 3", the one whose mark they have
};

void to_json(nlohmann::json& json, const CellCode& code);
void from_json(const nlohmann::json& json, CellCode& code);

/// Names of cells that are older than the last definition of another that their code uses: "net was defined again in
/// cell 4; optimizer, step are older, and hold that of cell 1 wherever they use it: define those again, too". Of all
/// that uses an older `name`; with `itself`, of what `name` was made with. Empty where there is none, or no cell has
/// that name. Local.
std::string older_definitions(const std::string& name, bool itself);

/// Of a cell that this process has loaded, by the number that the collective log has for it; empty where it has not.
/// Names are those that __cxa_demangle gives: in a session without the marks of cells. Local.
CellCode code_of_cell(int64_t cell);

}  // namespace lockstep::inspect
