// What jobs leave behind: dumps of the Flight Recorder, answers of NCCL's RAS, errors of communicators, torchelastic's
// error files, logs, and the collective logs of ranks.
#include "inspectors/evidence/evidence.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "collectives/log/collective_log_layout.h"
#include "inspectors/evidence/async_errors.h"
#include "inspectors/evidence/evidence_json.h"
#include "inspectors/evidence/flight_recorder.h"
#include "inspectors/evidence/ras.h"
#include "inspectors/hang/picture.h"
#include "inspectors/hang/picture_json.h"
#include "inspectors/pickle/python_pickle.h"
#include "inspectors/remains/job_files.h"
#include "inspectors/remains/judge.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

/// What was read is sent to another machine, and judged.
void use(const inspect::Evidence& evidence) {
  const nlohmann::json sent = evidence;
  inspect::Remains remains;
  remains.evidence = {evidence, sent.get<inspect::Evidence>()};
  remains.evidence[1].rank = 1;
  inspect::judge(remains);
}

template <typename Read>
void evidence_of(std::string_view bytes, Read read) {
  try {
    use(read(bytes));
  } catch (const inspect::UnreadableEvidence&) {
  }
}

void flight_recorder(std::string_view bytes) {
  evidence_of(bytes,
              [](std::string_view each) { return inspect::read_flight_recorder(each, "dump", 0, reading_limit()); });
}

void ras(std::string_view bytes) {
  evidence_of(bytes, [](std::string_view each) { return inspect::read_ras(each, "ras", reading_limit()); });
}

void async_errors(std::string_view bytes) {
  evidence_of(bytes, [](std::string_view each) { return inspect::read_async_errors(each, "errors", reading_limit()); });
}

void pickle(std::string_view bytes) {
  try {
    const inspect::Pickle pickle(bytes, reading_limit());
    inspect::short_text_of(pickle.value());
    inspect::ReadingLimit left = pickle.limit();
    inspect::text_of(pickle.value(), left);
  } catch (const std::runtime_error&) {
  }
}

/// A folder of a job, with these bytes as each kind of file: `lockstep diagnose FOLDER`.
void remains(std::string_view bytes) {
  const std::string job = folder() + "/job";
  for (const char* name : {"rank0.log", "nccl_trace_rank_1", "attempt_0/2/error.json"})
    written(std::string("job/") + name, bytes);
  try {
    inspect::judge(inspect::read_remains({job}, reading_limit()));
    inspect::judge(inspect::read_remains({job + "/rank0.log"}, reading_limit()));
  } catch (const inspect::UnreadableEvidence&) {
  }
}

/// The collective log of a rank, which it may be writing, or have written wrongly, and what a relay sends of it. A log has
/// some megabytes, most of which are zero; the input has the others: pieces with their offset (4 bytes), size (2) and bytes.
void collective_log(std::string_view bytes) {
  constexpr size_t kHead = 6;
  const std::string path = written("rank-0.log", "");
  std::filesystem::resize_file(path, dist::log_layout::kFileBytes);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    while (bytes.size() >= kHead) {
      uint32_t offset = 0;
      uint16_t size = 0;
      std::memcpy(&offset, bytes.data(), sizeof offset);
      std::memcpy(&size, bytes.data() + sizeof offset, sizeof size);
      const std::string_view piece = bytes.substr(kHead, size);
      file.seekp(offset % (dist::log_layout::kFileBytes - 0xffff));
      file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
      bytes.remove_prefix(kHead + piece.size());
    }
  }
  inspect::RankPicture rank;
  if (!inspect::read_log(rank, path)) return;
  inspect::RankPicture sent;
  inspect::take_log_json(sent, nlohmann::json::parse(inspect::log_json(rank).dump(
                                   -1, ' ', false, nlohmann::json::error_handler_t::replace)));
  check(sent.waits.size() == rank.waits.size() && sent.recent.size() == rank.recent.size(),
        "the log of a rank is the same on another machine");
}

const AddTarget kFlightRecorder("flight_recorder", flight_recorder), kRas("ras", ras),
    kAsyncErrors("async_errors", async_errors), kPickle("pickle", pickle), kRemains("remains", remains),
    kCollectiveLog("collective_log", collective_log);

}  // namespace
}  // namespace lockstep::fuzz
