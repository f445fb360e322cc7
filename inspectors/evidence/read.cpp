#include "inspectors/evidence/read.h"

#include <optional>

#include "inspectors/evidence/async_errors.h"
#include "inspectors/evidence/file_bytes.h"
#include "inspectors/evidence/flight_recorder.h"
#include "inspectors/evidence/ras.h"

namespace lockstep::inspect {
namespace {

Evidence read(std::string_view bytes, const std::string& origin, std::optional<int> rank, ReadingLimit limit) {
  const size_t begin = bytes.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) throw UnreadableEvidence(origin + " is empty");
  if (bytes[begin] != '{') return read_flight_recorder(bytes, origin, rank, limit);
  // It has the first fields, which c10d and NCCL write in a fixed order; a line of errors is shorter.
  const std::string_view head = bytes.substr(begin, 4096);
  if (head.find("\"nccl_version\"") != std::string_view::npos) return read_ras(bytes, origin, limit);
  const std::string_view line = head.substr(0, head.find('\n'));
  if (line.find("\"time_ns\"") != std::string_view::npos && line.find("\"error\"") != std::string_view::npos &&
      line.find("\"entries\"") == std::string_view::npos)
    return read_async_errors(bytes, origin, limit);
  return read_flight_recorder(bytes, origin, rank, limit);
}

}  // namespace

Evidence read_evidence(std::string_view bytes, const std::string& origin) {
  return read(bytes, origin, std::nullopt, ReadingLimit());
}

Evidence read_evidence_file(const std::string& path, ReadingLimit limit) {
  const std::string bytes = file_bytes(path, kLargestDump, limit);
  return read(bytes, path, rank_in_file_name(path), limit);
}

}  // namespace lockstep::inspect
