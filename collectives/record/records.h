// Records are what a rank keeps of its last steps, one after the other in a file: each has a header, a text in JSON, and
// bytes of tensors. The same form is used in the files that a rank writes while it runs (rank_files.h) and in the file
// that a person keeps (recording.h). Every header has a checksum of itself and of the text, so that a file that ends in
// the middle of a record, or goes on with what an earlier use has left, ends at the last whole one.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/descriptor.h"

namespace lockstep::dist {

enum class RecordKind : uint32_t {
  file = 1,  // the first of a recording: format, version, ranks
  about,  // the first of a rank: who it is, and with what it computes
  call,  // a collective has begun: its number, group, operation, fingerprints of what is sent
  result,  // what it has received, or why it has failed
  step,  // a step begins: its number, the states of generators, the batch
  state,  // of parameters, buffers and optimizers at the beginning of the next step
  stopped,  // recording has ended before the program, and why
  end,  // the last of a recording
  cell,  // a cell of a session begins: its number, those of the next call and step; or it has ended
  group,  // a group is connected: its name, and the backend that it was made with
};

struct RecordHeader {
  uint32_t magic = 0;
  RecordKind kind{};
  uint64_t segment = 0;  // in a file that is used again, older records have another one
  uint64_t text_bytes = 0, payload_bytes = 0;
  uint64_t payload_sum = 0;  // protocol::checksum; 0: not taken
  uint64_t sum = 0;  // of the header with 0 here, and of the text
};

/// A record as a reader finds it. The payload is read when it is asked for.
struct Record {
  RecordKind kind{};
  uint64_t segment = 0;
  nlohmann::json text;
  uint64_t payload_at = 0, payload_bytes = 0, payload_sum = 0;
};

/// Appends records to a file. Not from two threads at once.
class RecordWriter {
 public:
  explicit RecordWriter(int fd, uint64_t segment = 0) : fd_(fd), segment_(segment) {}

  /// `payload` is written as one. `sums`: with its checksum, which costs a read. The header comes last, so that what is
  /// written while the process is killed is no record. Returns 0, or the errno; the next record then takes its place.
  [[nodiscard]] int append(RecordKind kind, const nlohmann::json& text,
                           const std::vector<std::string_view>& payload = {}, bool sums = false);
  uint64_t size() const { return at_; }
  void set_segment(uint64_t segment) { segment_ = segment; }

 private:
  int fd_;
  uint64_t segment_;
  uint64_t at_ = 0;
};

/// Reads records from the beginning of a file. Nothing that a file holds makes it throw.
class RecordReader {
 public:
  explicit RecordReader(int fd);

  /// Returns nothing at the end, and where no whole record follows.
  std::optional<Record> next();
  /// Where the next record would be: behind the last whole one.
  uint64_t at() const { return at_; }
  uint64_t file_size() const { return size_; }

 private:
  const int fd_;
  uint64_t size_ = 0, at_ = 0;
};

/// Returns the payload. Nothing where it can't be read or has another checksum.
std::optional<std::string> read_payload(int fd, const Record& record);

}  // namespace lockstep::dist
