// A recording is one file with what several ranks of a job have left: the records of a rank follow one another, each
// payload with a checksum. It is written at once, and read by whoever replays a rank.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "collectives/record/records.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// Describes what write_recording has written.
struct WrittenRecording {
  RankSet ranks;
  uint64_t bytes = 0;
};

/// Writes what the ranks of `folder`, a job's or a session's, have left to a new file of this user only, which takes the place
/// of the one at `path`. Writes nothing where no rank has left anything. `session` is what running a session again needs;
/// null for a job. Throws Error.
WrittenRecording write_recording(const std::string& folder, int world_size, const std::string& path,
                                 const nlohmann::json& session = nullptr);

/// Whether the file begins as a recording does, of any version.
bool is_recording(const std::string& path);

class Recording {
 public:
  /// Reads all headers. Throws Error for a file that is missing, no recording, of another version, cut off, or damaged.
  explicit Recording(const std::string& path);

  RankSet ranks() const;
  /// What write_recording() was given as `session`.
  const nlohmann::json& session() const { return session_; }
  /// What `about` says of a rank, and the records of it after that. Throws Error, naming the ranks that are there.
  const nlohmann::json& about(int rank) const;
  const std::vector<Record>& records(int rank) const;
  /// Throws Error if it is damaged.
  std::string payload(const Record& record) const;
  /// Reads all payloads of a rank. Throws Error if one is damaged.
  void check(int rank) const;

 private:
  struct OfRank {
    nlohmann::json about;
    std::vector<Record> records;
  };
  const OfRank& rank_or_throw(int rank) const;

  std::string path_;
  Descriptor file_;
  nlohmann::json session_;
  std::map<int, OfRank> ranks_;
};

}  // namespace lockstep::dist
