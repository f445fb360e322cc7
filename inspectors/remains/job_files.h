// Sorts the files of a job: which of them are evidence, error files and logs, and what stands in them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "inspectors/pickle/reading_limit.h"
#include "inspectors/remains/remains.h"

namespace lockstep::inspect {

/// Returns the rank that a path names: "rank3", "rank_3" or "rank-3" in the name of the file or of a folder; else the
/// digits at the end of the file's name, unless it is a log; else the file's folder, if it is called 3 and torchrun has
/// made it: it makes one for each local rank, in attempt_0, with stdout.log, stderr.log and error.json. The part
/// nearest to the end counts.
std::optional<int> rank_in_path(const std::string& path);

/// Reads files, and folders with all that is in them. A file that holds nothing of a job is named in `unread` if it was
/// given itself, and passed over in a folder. Of several dumps of one rank and source the newest counts. Of dumps, what
/// says something about the end of the job is kept: the newest calls of each group, and all that have not ended. Reads
/// with as many threads as there are cores, which share `limit`; a file that takes more than a share is read alone.
/// Folders of torchrun of several machines are told apart by the ranks that torch names in them.
/// Throws UnreadableEvidence for a path that does not exist.
Remains read_remains(const std::vector<std::string>& paths, const ReadingLimit& limit = ReadingLimit());

}  // namespace lockstep::inspect
