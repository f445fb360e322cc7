// Runs `lockstep run` on a script and gives its events back, cell by cell.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::test {

struct ScriptRun {
  int exit_code = -1;  // 128 + N where signal N ended it
  std::vector<nlohmann::json> events;
  std::string shown;  // what people would read

  /// Events of this kind ("value", "error", ...) of the cell with this title. A failure of the test when there is no
  /// such cell.
  std::vector<nlohmann::json> of(const std::string& title, const std::string& event) const;
};

/// `lockstep run SCRIPT -n RANKS --json - --arg data=...`. The path of a script that is not absolute is one under scripts/.
ScriptRun run_script(const std::string& script, int ranks);

/// A copy of a script under scripts/ in which `wrong` stands for `right`, which must be there exactly once after `after`.
/// Its path; the file goes with the test's temporary folder.
std::string spoiled_copy(const std::string& script, const std::string& after, const std::string& right,
                         const std::string& wrong);

/// Runs such a copy on two ranks. The cell with this title is there to notice, and must end in an error.
void expect_noticed(const std::string& script, const std::string& after, const std::string& right,
                    const std::string& wrong, const std::string& title);

/// [0, 1]: ranks as events have them.
nlohmann::json ranks(std::initializer_list<int> list);

}  // namespace lockstep::test
