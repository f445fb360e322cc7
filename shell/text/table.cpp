#include "shell/text/table.h"

#include <algorithm>

#include "shell/text/text.h"

namespace lockstep::shell {

std::string table(std::vector<std::vector<std::string>> rows, int indent) {
  for (auto& row : rows)
    for (std::string& each : row) each = without_controls(each);
  std::vector<int> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], text_width(row[i]));
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      const int padding = widths[i] - text_width(row[i]) + 2;
      if (i + 1 < row.size()) line.append(static_cast<size_t>(padding), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::shell
