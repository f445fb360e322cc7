#include "shell/journal/journal_reader.h"

#include <algorithm>

#include "shell/journal/journal_folder.h"
#include "shell/journal/record.h"

namespace lockstep::shell {
namespace {

uint64_t number_of(const nlohmann::json& record) { return record["n"].get<uint64_t>(); }

}  // namespace

JournalReader::JournalReader(const std::string& path, bool with_output) {
  sources_[0].paths = {cells_path(path)};
  const std::vector<int64_t> numbers = with_output ? output_files(path) : std::vector<int64_t>();
  for (const int64_t number : numbers) sources_[1].paths.push_back(output_path(path, number));
  is_rotated_ = !numbers.empty() && numbers.front() > 1;
  for (Source& source : sources_) read_ahead(source);
  if (sources_[1].ahead) first_output_ = number_of(*sources_[1].ahead);
}

void JournalReader::read_ahead(Source& source) {
  source.ahead.reset();
  for (;;) {
    if (!source.file.is_open()) {
      if (source.at == source.paths.size()) return;
      source.file.open(source.paths[source.at++], std::ios::binary);
    }
    std::string line;
    if (!std::getline(source.file, line)) {
      source.file = std::ifstream();
      continue;
    }
    const bool is_whole = !source.file.eof();  // its end is there
    if (is_whole) source.ahead = read_record(line);
    if (source.ahead) return;
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
    const bool is_size = is_rotated_ && number <= first_output_;
    nlohmann::json missing = {{"event", "missing"},
                              {"records", number - last_ - 1},
                              {"reason", is_size ? "size" : "lost"},
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
