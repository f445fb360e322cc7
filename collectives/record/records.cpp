#include "collectives/record/records.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "protocol/checksum.h"
#include "protocol/read_json.h"

namespace lockstep::dist {

using nlohmann::json;

namespace {
constexpr uint32_t kRecordMagic = 0x3152534C;  // "LSR1": the 1 is the format's version

/// Returns 0, or the errno.
int write_at(int fd, std::string_view bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t count =
        uninterrupted([&] { return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)); });
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(count));
    at += static_cast<uint64_t>(count);
  }
  return 0;
}

uint64_t sum_of(RecordHeader header, std::string_view text) {
  header.sum = 0;
  std::string all(reinterpret_cast<const char*>(&header), sizeof header);
  return protocol::checksum(all.append(text));
}

uint64_t padded(uint64_t size) { return (size + 7) / 8 * 8; }
}  // namespace

int RecordWriter::append(RecordKind kind, const json& text, const std::vector<std::string_view>& payload, bool sums) {
  const std::string words = text.dump(-1, ' ', false, json::error_handler_t::replace);
  RecordHeader header{.magic = kRecordMagic, .kind = kind, .segment = segment_, .text_bytes = words.size()};
  uint64_t at = at_ + sizeof header;
  if (const int error = write_at(fd_, words, at)) return error;
  at += words.size();
  for (const std::string_view each : payload) {
    if (const int error = write_at(fd_, each, at)) return error;
    at += each.size();
    header.payload_bytes += each.size();
  }
  if (const int error = write_at(fd_, std::string(padded(at) - at, '\0'), at)) return error;
  if (sums) {
    std::string all;
    for (const std::string_view each : payload) all.append(each);
    header.payload_sum = protocol::checksum(all);
  }
  header.sum = sum_of(header, words);
  if (const int error = write_at(fd_, {reinterpret_cast<const char*>(&header), sizeof header}, at_)) return error;
  at_ = padded(at);
  return 0;
}

RecordReader::RecordReader(int fd) : fd_(fd) {
  struct stat status;
  if (::fstat(fd, &status) == 0 && status.st_size > 0) size_ = static_cast<uint64_t>(status.st_size);
}

std::optional<Record> RecordReader::next() {
  RecordHeader header;
  if (size_ < at_ || size_ - at_ < sizeof header) return std::nullopt;
  const std::string bytes = read_at(fd_, sizeof header, static_cast<off_t>(at_));
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t left = size_ - at_ - sizeof header;
  if (header.magic != kRecordMagic || header.text_bytes > left || header.payload_bytes > left - header.text_bytes)
    return std::nullopt;
  const std::string text = read_at(fd_, header.text_bytes, static_cast<off_t>(at_ + sizeof header));
  if (text.size() < header.text_bytes || sum_of(header, text) != header.sum) return std::nullopt;
  Record record{.kind = header.kind,
                .segment = header.segment,
                .text = protocol::read_json(text),
                .payload_at = at_ + sizeof header + header.text_bytes,
                .payload_bytes = header.payload_bytes,
                .payload_sum = header.payload_sum};
  if (!record.text.is_object()) return std::nullopt;
  at_ = padded(record.payload_at + record.payload_bytes);
  return record;
}

std::optional<std::string> read_payload(int fd, const Record& record) {
  std::string bytes = read_at(fd, record.payload_bytes, static_cast<off_t>(record.payload_at));
  if (bytes.size() < record.payload_bytes) return std::nullopt;
  if (record.payload_sum != 0 && protocol::checksum(bytes) != record.payload_sum) return std::nullopt;
  return bytes;
}

}  // namespace lockstep::dist
