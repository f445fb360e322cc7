// Recordings of `lockstep run --record K`, which `lockstep replay` reads, and the files of a rank that they are made of.
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/record/rank_files.h"
#include "collectives/record/recording.h"
#include "protocol/checksum.h"
#include "protocol/dist_error.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

/// Each header gets the checksum that fits it, which no mutation finds by itself.
std::string with_sums(std::string_view bytes) {
  std::string all(bytes);
  dist::RecordHeader header;
  for (size_t at = 0; all.size() - at >= sizeof header;) {
    std::memcpy(&header, &all[at], sizeof header);
    const size_t left = all.size() - at - sizeof header;
    if (header.text_bytes > left || header.payload_bytes > left - header.text_bytes) break;
    header.sum = header.payload_sum = 0;
    std::memcpy(&all[at], &header, sizeof header);
    header.sum = protocol::checksum(std::string_view(all).substr(at, sizeof header + header.text_bytes));
    std::memcpy(&all[at], &header, sizeof header);
    at += (sizeof header + header.text_bytes + header.payload_bytes + 7) / 8 * 8;
    if (at > all.size()) break;
  }
  return all;
}

/// As `lockstep replay` reads it, and copies what it says.
void read(const std::string& path) {
  try {
    const dist::Recording recording(path);
    for (const int rank : recording.ranks()) {
      nlohmann::json(recording.about(rank)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      recording.check(rank);
      for (const dist::Record& each : recording.records(rank))
        check(recording.payload(each).size() == each.payload_bytes, "a payload that is read is whole");
    }
  } catch (const dist::Error&) {
  }
}

void recording(std::string_view bytes) {
  read(written("job.recording", bytes));
  read(written("job.recording", with_sums(bytes)));
}

/// The file of the opening of a rank's recording.
void rank_files(std::string_view bytes) {
  for (const std::string& each : {std::string(bytes), with_sums(bytes)}) {
    written("rank-0.record-0", each);
    const dist::LeftRecords left = dist::read_rank_files(folder(), 0);
    check(left.records.empty() || left.records.front().record.kind == dist::RecordKind::about,
          "what a rank has left begins with who it is");
    try {
      dist::write_recording(folder(), 1, folder() + "/made.recording");
    } catch (const dist::Error&) {
    }
  }
}

const AddTarget kRecording("recording", recording), kRankFiles("rank_files", rank_files);

}  // namespace
}  // namespace lockstep::fuzz
