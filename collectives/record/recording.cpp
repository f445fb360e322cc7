#include "collectives/record/recording.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "collectives/record/rank_files.h"
#include "protocol/dist_error.h"
#include "protocol/version.h"

namespace lockstep::dist {

using nlohmann::json;

namespace {
constexpr int kRecordingVersion = 2;

[[noreturn]] void throw_not_written(const std::string& path, int error) {
  throw Error(fmt::format("the recording {} could not be written: {}", path, std::strerror(error)));
}

/// A file that is removed unless it comes to its place.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), fresh_(fmt::format("{}.{}", path, ::getpid())) {
    ::unlink(fresh_.c_str());
    file_ = Descriptor(::open(fresh_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file_) throw_not_written(path_, errno);
  }
  ~NewFile() {
    if (!fresh_.empty()) ::unlink(fresh_.c_str());
  }
  int fd() const { return file_.get(); }
  void finish() {
    if (!file_.reset() || ::rename(fresh_.c_str(), path_.c_str()) != 0) throw_not_written(path_, errno);
    fresh_.clear();
  }

 private:
  const std::string path_;
  std::string fresh_;
  Descriptor file_;
};

/// The numbers of the segments of a rank, but for `opening`.
std::set<uint64_t> segments_of(const LeftRecords& left) {
  std::set<uint64_t> segments;
  for (const LeftRecord& each : left.records)
    if (each.record.segment > 0) segments.insert(each.record.segment);
  return segments;
}

/// A rank that is ahead by a step may have begun a segment anew that others still have, and with it its shares of what they
/// received. They go without that segment, unless it is their last one.
void leave_out_unshared(std::map<int, LeftRecords>& left) {
  uint64_t first_of_all = 0;
  for (const auto& [rank, records] : left)
    if (const auto segments = segments_of(records); !segments.empty())
      first_of_all = std::max(first_of_all, *segments.begin());
  for (auto& [rank, records] : left)
    if (const auto segments = segments_of(records); !segments.empty() && *segments.rbegin() >= first_of_all)
      std::erase_if(records.records, [&](const LeftRecord& each) {
        return each.record.segment > 0 && each.record.segment < first_of_all;
      });
}
}  // namespace

WrittenRecording write_recording(const std::string& folder, int world_size, const std::string& path,
                                 const json& session) {
  std::map<int, LeftRecords> left;
  for (int rank = 0; rank < world_size; ++rank)
    if (LeftRecords records = read_rank_files(folder, rank); !records.records.empty()) left[rank] = std::move(records);
  WrittenRecording written;
  for (const auto& [rank, records] : left) written.ranks.insert(rank);
  leave_out_unshared(left);
  if (left.empty()) return written;
  NewFile file(path);
  RecordWriter writer(file.fd());
  int64_t count = 0;
  const auto append = [&](RecordKind kind, const json& text, const std::vector<std::string_view>& payload = {}) {
    if (const int error = writer.append(kind, text, payload, /*sums=*/true)) throw_not_written(path, error);
    ++count;
  };
  append(
      RecordKind::file,
      {{"version", kRecordingVersion}, {"lockstep", kVersion}, {"ranks", written.ranks.ranks()}, {"session", session}});
  for (const auto& [rank, records] : left)
    for (const auto& [record, source] : records.records) {
      const auto payload = read_payload(records.files[static_cast<size_t>(source)].get(), record);
      // A rank that still runs has begun the segment anew meanwhile: what was read of it until here is whole.
      if (!payload) break;
      writer.set_segment(record.segment);
      append(record.kind, record.text, {*payload});
    }
  writer.set_segment(0);
  append(RecordKind::end, {{"records", count}});
  written.bytes = writer.size();
  file.finish();
  return written;
}

bool is_recording(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return false;
  const auto first = RecordReader(file.get()).next();
  return first && first->kind == RecordKind::file;
}

Recording::Recording(const std::string& path) : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!file_) throw Error(fmt::format("the recording {} can't be opened: {}", path, std::strerror(errno)));
  RecordReader reader(file_.get());
  const auto first = reader.next();
  if (!first || first->kind != RecordKind::file)
    throw Error(fmt::format("{} is no recording of --record, or its beginning is damaged", path));
  if (const json& version = first->text.value("version", json()); version != kRecordingVersion)
    throw Error(fmt::format("{} is a recording of version {}, and this program reads version {}", path, version.dump(),
                            kRecordingVersion));
  session_ = first->text.value("session", json());
  int64_t count = 1;
  OfRank* of_rank = nullptr;
  while (auto record = reader.next()) {
    if (record->kind == RecordKind::end) {
      if (record->text.value("records", json()) == json(count)) return;
      break;
    }
    ++count;
    if (record->kind == RecordKind::about) {
      const json rank = record->text.value("rank", json());
      if (!rank.is_number_integer()) break;
      of_rank = &ranks_[rank.get<int>()];
      of_rank->about = std::move(record->text);
    } else if (of_rank) {
      of_rank->records.push_back(std::move(*record));
    }
  }
  throw Error(
      fmt::format("the recording {} is damaged, or cut off, at byte {} of {}", path, reader.at(), reader.file_size()));
}

RankSet Recording::ranks() const {
  RankSet ranks;
  for (const auto& [rank, records] : ranks_) ranks.insert(rank);
  return ranks;
}

const Recording::OfRank& Recording::rank_or_throw(int rank) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end())
    throw Error(fmt::format("the recording {} has no rank {}; it has {}", path_, rank, ranks().words()));
  return found->second;
}

const json& Recording::about(int rank) const { return rank_or_throw(rank).about; }
const std::vector<Record>& Recording::records(int rank) const { return rank_or_throw(rank).records; }

std::string Recording::payload(const Record& record) const {
  auto bytes = read_payload(file_.get(), record);
  if (!bytes)
    throw Error(fmt::format("the recording {} is damaged in the {} bytes from byte {}", path_, record.payload_bytes,
                            record.payload_at));
  return std::move(*bytes);
}

void Recording::check(int rank) const {
  for (const Record& each : records(rank)) payload(each);
}

}  // namespace lockstep::dist
