#include "collectives/record/rank_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {
constexpr int kSlots = 3;
int slot_of(uint64_t segment) { return segment == 0 ? 0 : 1 + static_cast<int>(segment % 2); }
}  // namespace

std::string record_file(const std::string& folder, int rank, int slot) {
  return fmt::format("{}/rank-{}.record-{}", folder, rank, slot);
}

RankFiles::RankFiles(const std::string& folder, int rank) : folder_(folder), rank_(rank) {
  for (int slot = 0; slot < kSlots; ++slot) ::unlink(record_file(folder, rank, slot).c_str());
  slots_.push_back(open_slot(0, 0));
}

RankFiles::Slot RankFiles::open_slot(int slot, uint64_t segment) const {
  const std::string path = record_file(folder_, rank_, slot);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) throw Error(fmt::format("{} can't be made: {}", path, std::strerror(errno)));
  const int fd = file.get();
  return {std::move(file), RecordWriter(fd, segment), segment};
}

// The file keeps its memory, so that a step in the middle of training needs no new pages.
void RankFiles::begin_segment() {
  const uint64_t segment = segment_ + 1;
  std::erase_if(slots_, [&](const Slot& each) { return each.segment != 0 && each.segment + 1 < segment; });
  slots_.push_back(open_slot(slot_of(segment), segment));
  segment_ = segment;
}

int RankFiles::append(uint64_t segment, RecordKind kind, const nlohmann::json& text,
                      const std::vector<std::string_view>& payload) {
  const auto slot = std::ranges::find(slots_, segment, &Slot::segment);
  return slot == slots_.end() ? 0 : slot->writer.append(kind, text, payload);
}

namespace {
std::vector<Record> read_segment(int fd) {
  std::vector<Record> records;
  RecordReader reader(fd);
  while (auto record = reader.next()) {
    if (!records.empty() && record->segment != records.front().segment) break;  // of an earlier use of the file
    records.push_back(std::move(*record));
  }
  return records;
}
}  // namespace

LeftRecords read_rank_files(const std::string& folder, int rank) {
  LeftRecords left;
  std::vector<std::vector<LeftRecord>> segments;
  for (int slot = 0; slot < kSlots; ++slot) {
    Descriptor file(::open(record_file(folder, rank, slot).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) continue;
    std::vector<LeftRecord> records;
    for (Record& each : read_segment(file.get()))
      records.push_back({std::move(each), static_cast<int>(left.files.size())});
    left.files.push_back(std::move(file));
    const auto fits = [&] {
      if (records.empty()) return false;
      const RecordKind first = records.front().record.kind;
      return slot == 0 ? first == RecordKind::about : first == RecordKind::state;
    };
    if (fits()) segments.push_back(std::move(records));
  }
  std::ranges::sort(segments, {}, [](const auto& each) { return each.front().record.segment; });
  if (segments.empty() || segments.front().front().record.kind != RecordKind::about) return {};
  for (auto& each : segments) std::ranges::move(each, std::back_inserter(left.records));
  return left;
}

}  // namespace lockstep::dist
