#include "shell/journal/record.h"

#include <fmt/format.h>

#include "protocol/checksum.h"
#include "protocol/read_json.h"

namespace lockstep::shell {
namespace {

constexpr std::string_view kBegin = "{\"check\":\"", kAfter = "\",";
constexpr size_t kDigits = 16;

std::string digits_of(std::string_view bytes) { return fmt::format("{:016x}", protocol::checksum(bytes)); }

}  // namespace

std::string record_line(const nlohmann::json& record) {
  const std::string text = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string_view rest = std::string_view(text).substr(1);
  std::string line;
  line.reserve(kBegin.size() + kDigits + kAfter.size() + rest.size() + 1);
  line.append(kBegin).append(digits_of(rest)).append(kAfter).append(rest).push_back('\n');
  return line;
}

std::optional<nlohmann::json> read_record(std::string_view line) {
  if (!line.starts_with(kBegin)) return std::nullopt;
  line.remove_prefix(kBegin.size());
  if (line.size() < kDigits + kAfter.size() || line.substr(kDigits, kAfter.size()) != kAfter) return std::nullopt;
  const std::string_view digits = line.substr(0, kDigits), rest = line.substr(kDigits + kAfter.size());
  if (digits != digits_of(rest)) return std::nullopt;
  nlohmann::json record = protocol::read_json("{" + std::string(rest));
  if (!record.is_object() || !record.contains("n") || !record["n"].is_number_unsigned() || !record.contains("event") ||
      !record["event"].is_string())
    return std::nullopt;
  return record;
}

}  // namespace lockstep::shell
