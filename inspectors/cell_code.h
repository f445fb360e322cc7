// What the code of a cell consists of: its functions, and what it uses of other cells. To say of two ranks whose code differs in what.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::inspect {

struct CellCode {
  std::map<std::string, std::string> uses;  // "scale(double)": "cell 3", where this rank has it from
  std::map<std::string, std::string> functions;  // "train(int)": a mark of its code
};

void to_json(nlohmann::json& json, const CellCode& code);
void from_json(const nlohmann::json& json, CellCode& code);

/// Of a cell that this process has loaded, by the number that the collective log has for it; empty where it has not. Names are those
/// that __cxa_demangle gives: in a session without the marks of cells. Local.
CellCode code_of_cell(int64_t cell);

}  // namespace lockstep::inspect
