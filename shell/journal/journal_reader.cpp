#include "shell/journal/journal_reader.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shell/journal/journal_folder.h"
#include "shell/journal/record.h"

namespace lockstep::shell {
namespace {

uint64_t number_of(const nlohmann::json& record) { return record["n"].get<uint64_t>(); }

/// Returns the number of the first record of a file; 0 where it has none.
uint64_t first_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);)
    if (const auto record = read_record(line)) return number_of(*record);
  return 0;
}

}  // namespace

JournalReader::JournalReader(const std::string& path, bool with_output) {
  sources_[0].paths = {cells_path(path)};
  const std::vector<int64_t> cells = more_cells_files(path);
  const std::vector<int64_t> output = with_output ? output_files(path) : std::vector<int64_t>();
  for (const int64_t number : cells) sources_[0].paths.push_back(cells_path(path, number));
  for (const int64_t number : output) sources_[1].paths.push_back(output_path(path, number));
  if (!cells.empty() && cells.front() > 1) gone_until_ = first_of(sources_[0].paths[1]);
  if (!output.empty() && output.front() > 1) gone_until_ = std::max(gone_until_, first_of(sources_[1].paths[0]));
  for (Source& source : sources_) read_ahead(source);
}

void JournalReader::read_ahead(Source& source) {
  source.ahead.reset();
  for (;;) {
    if (!source.file.is_open()) {
      if (source.at == source.paths.size()) return;
      source.file.open(source.paths[source.at++], std::ios::binary);
      // A session that runs may have removed it since the files were listed.
      if (!source.file.is_open()) source.has_gap = source.has_gap || errno == ENOENT;
    }
    std::string line;
    if (!std::getline(source.file, line)) {
      source.file = std::ifstream();
      continue;
    }
    const bool is_whole = !source.file.eof();  // its end is there
    if (is_whole) source.ahead = read_record(line);
    if (source.ahead) {
      if (std::exchange(source.has_gap, false)) gone_until_ = std::max(gone_until_, number_of(*source.ahead));
      return;
    }
    if (is_whole && !line.empty()) ++damaged_;
  }
}

std::optional<nlohmann::json> JournalReader::next() {
  Source* next = nullptr;
  for (Source& source : sources_)
    if (source.ahead && (!next || number_of(*source.ahead) < number_of(*next->ahead))) next = &source;
  if (!next) return std::nullopt;
  const uint64_t number = number_of(*next->ahead);
  if (number > last_ + 1) {
    nlohmann::json missing = {{"event", "missing"},
                              {"records", number - last_ - 1},
                              {"reason", number <= gone_until_ ? "size" : "lost"},
                              {"n", last_ + 1},
                              {"time", (*next->ahead).value("time", 0.0)}};
    last_ = number - 1;
    return missing;
  }
  last_ = std::max(last_, number);
  nlohmann::json record = std::move(*next->ahead);
  read_ahead(*next);
  return record;
}

}  // namespace lockstep::shell
