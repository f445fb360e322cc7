#include "inspectors/findings/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "protocol/utf8.h"

namespace lockstep::inspect {
namespace {
/// Returns columns on a terminal: one for each character of UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), std::not_fn(is_continuation_byte)));
}
bool is_number(const std::string& text) {
  return text.empty() || text == "-" || (text[0] >= '0' && text[0] <= '9') || text[0] == '-' || text[0] == '+';
}
}  // namespace

std::string counted(int64_t count, const std::string& noun) {
  if (count == 1) return "1 " + noun;
  const bool sibilant = noun.ends_with("ch") || noun.ends_with("s");
  return fmt::format("{} {}{}", count, noun, sibilant ? "es" : "s");
}

std::string bytes_text(double bytes) {
  const double size = std::abs(bytes);
  if (size < 1e3) return fmt::format("{:.0f} B", bytes);
  if (size < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (size < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string time_text(double seconds) {
  const double size = std::abs(seconds);
  if (size < 1e-3) return fmt::format("{:.0f} µs", seconds * 1e6);
  if (size < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string percent_text(double share) { return fmt::format("{:.0f}%", share * 100); }

std::string above_median_text(double share) {
  if (share < 1) return percent_text(share) + " more than the median";
  return fmt::format("{:.{}f} times the median", share + 1, share < 9 ? 1 : 0);
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> width;
  std::vector<bool> numbers;
  for (size_t r = 0; r < rows.size(); ++r) {
    width.resize(std::max(width.size(), rows[r].size()));
    numbers.resize(width.size(), true);
    for (size_t c = 0; c < rows[r].size(); ++c) {
      width[c] = std::max(width[c], width_of(rows[r][c]));
      if (r > 0) numbers[c] = numbers[c] && is_number(rows[r][c]);
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(width[c] - width_of(row[c]), ' ');
      line += (c > 0 ? "  " : "") + (numbers[c] ? pad + row[c] : row[c] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace lockstep::inspect
