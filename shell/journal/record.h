// A journal is a file of records: JSON objects, one a line. A line begins with a checksum of what follows it, so that a
// torn or damaged line is known as that, and only that one is lost.
//
//   {"check":"89ab…","cell":7,"event":"output",…,"n":12,"time":3.2}
//
// `n` counts the records of a session from 1, over all its files; a number that is missing is a record that
// was dropped, could not be written, or is damaged.
// `event` and its fields are those of --json (docs/events.md), and "journal", "input", "ran", "rotated" and "closed".
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::shell {

/// Returns the line, with its end.
std::string record_line(const nlohmann::json& record);

/// Returns the record of a line without its end, less the checksum; nothing where it is not what was written.
std::optional<nlohmann::json> read_record(std::string_view line);

}  // namespace lockstep::shell
