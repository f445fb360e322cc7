#include "inspectors/compare/recording.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "protocol/checksum.h"
#include "protocol/error.h"
#include "protocol/read_json.h"

namespace lockstep::inspect::compare {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "lockstep-compare";
enum Record : uint32_t { kAbout = 1, kName, kSamples, kPiece, kValues, kNote, kStep, kEnd };

/// Begins every record. All numbers are little endian.
struct Header {
  uint32_t type = 0;
  uint32_t reserved = 0;
  uint64_t size = 0;  // of the payload, which follows
  uint64_t sum = 0;   // protocol::checksum of the payload
};
static_assert(sizeof(Header) == 24);

constexpr size_t kMostDims = 16, kMostPayload = size_t{64} << 20;  // values aside, which may be as large as the file
constexpr size_t kFlushAt = size_t{1} << 20;
constexpr uint32_t kMostCount = 1u << 24;  // of steps, micro-batches, calls and ranks

template <typename T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Takes numbers off a payload; `failed` once it has too few bytes.
struct Payload {
  std::string_view bytes;
  bool failed = false;

  template <typename T>
  T take(size_t dropped = 0) {  // bytes of a number, the lowest, that the file does not have
    T value{};
    if (bytes.size() < sizeof(T) - dropped) {
      failed = true;
      return value;
    }
    std::memcpy(reinterpret_cast<char*>(&value) + dropped, bytes.data(), sizeof(T) - dropped);
    bytes.remove_prefix(sizeof(T) - dropped);
    return value;
  }
};

[[noreturn]] void throw_bad(const std::string& path, const std::string& what) {
  throw Error(path + " is a damaged recording: " + what);
}

/// Whether the file has the upper five bytes of each sum: 28 bits of its fraction, where float32 has 23.
bool has_short_sums(Element element) {
  return element == Element::float32 || element == Element::bfloat16 || element == Element::float16;
}

constexpr size_t kShortSum = 5, kDropped = sizeof(double) - kShortSum;  // bytes

void put_short(std::string& bytes, double sum) {
  const uint64_t half = uint64_t{1} << (8 * kDropped - 1);
  const uint64_t rounded = std::bit_cast<uint64_t>(sum) + half;
  bytes.append(reinterpret_cast<const char*>(&rounded) + kDropped, kShortSum);
}

std::string piece_payload(const Piece& piece) {
  std::string bytes;
  bytes.reserve(128 + sizeof(Sketch) + piece.box.size.size() * 24);
  for (const uint32_t each : {piece.step, piece.name, piece.micro_batch, piece.call}) put(bytes, each);
  put(bytes, static_cast<uint8_t>(piece.kind));
  put(bytes, static_cast<uint8_t>(piece.element));
  put(bytes, piece.flags);
  put(bytes, static_cast<uint8_t>(piece.box.size.size()));
  put(bytes, piece.lead);
  put(bytes, piece.summary.not_finite);
  for (const std::vector<int64_t>* each : {&piece.box.shape, &piece.box.offset, &piece.box.size})
    for (const int64_t number : *each) put(bytes, number);
  const bool are_short = has_short_sums(piece.element);
  for (const double sum : piece.summary.sums) are_short ? put_short(bytes, sum) : put(bytes, sum);
  put(bytes, checksum_of(piece.summary.sums));
  return bytes;
}

/// Returns nothing where the sizes make no sense.
bool is_valid(const Box& box, size_t element_size) {
  int64_t count = static_cast<int64_t>(element_size), whole = count;
  for (size_t d = 0; d < box.size.size(); ++d) {
    if (box.size[d] < 0 || box.offset[d] < 0 || box.shape[d] < 0 || box.size[d] > box.shape[d] ||
        box.offset[d] > box.shape[d] - box.size[d])
      return false;
    if (__builtin_mul_overflow(count, box.size[d], &count)) return false;
    if (__builtin_mul_overflow(whole, box.shape[d] > 0 ? box.shape[d] : 1, &whole)) return false;
  }
  return true;
}

Piece piece_of(Payload payload, const Recording& recording) {
  Piece piece;
  piece.step = payload.take<uint32_t>();
  piece.name = payload.take<uint32_t>();
  piece.micro_batch = payload.take<uint32_t>();
  piece.call = payload.take<uint32_t>();
  const auto kind = payload.take<uint8_t>(), element = payload.take<uint8_t>();
  piece.flags = payload.take<uint8_t>();
  const size_t dims = payload.take<uint8_t>();
  piece.lead = payload.take<int32_t>();
  piece.summary.not_finite = payload.take<uint64_t>();
  if (payload.failed || kind >= kPieceKinds || element >= kElements || dims > kMostDims ||
      piece.name >= recording.names.size() || piece.step >= kMostCount || piece.micro_batch >= kMostCount ||
      piece.call >= kMostCount)
    throw_bad(recording.path, "a piece with impossible numbers");
  piece.kind = static_cast<PieceKind>(kind);
  piece.element = static_cast<Element>(element);
  for (std::vector<int64_t>* each : {&piece.box.shape, &piece.box.offset, &piece.box.size})
    for (size_t d = 0; d < dims; ++d) each->push_back(payload.take<int64_t>());
  const size_t dropped = has_short_sums(piece.element) ? kDropped : 0;
  for (double& sum : piece.summary.sums) sum = payload.take<double>(dropped);
  piece.checksum = payload.take<uint64_t>();
  if (payload.failed || !payload.bytes.empty() || !is_valid(piece.box, size_of(piece.element)))
    throw_bad(recording.path, "a piece with impossible sizes");
  return piece;
}

Samples samples_of(Payload payload, const Recording& recording) {
  Samples samples;
  samples.step = payload.take<uint32_t>();
  samples.micro_batch = payload.take<uint32_t>();
  if (payload.failed || payload.bytes.size() % sizeof(uint64_t) != 0 || samples.step >= kMostCount ||
      samples.micro_batch >= kMostCount)
    throw_bad(recording.path, "samples with impossible numbers");
  while (!payload.bytes.empty()) samples.hashes.push_back(payload.take<uint64_t>());
  return samples;
}

RecordingAbout about_of(std::string_view text, const std::string& path) {
  const json given = protocol::read_json(text);
  RecordingAbout about;
  try {
    about.rank = given.at("rank").get<int>();
    about.world_size = given.at("world_size").get<int>();
    about.torch = given.at("torch").get<std::string>();
    about.steps = given.at("steps").get<int64_t>();
    about.has_values = given.at("has_values").get<bool>();
    about.noise = given.at("noise").get<double>();
  } catch (const json::exception& error) {
    throw_bad(path, std::string("its description can't be read: ") + error.what());
  }
  if (about.rank < 0 || about.world_size < 1 || about.rank >= about.world_size ||
      about.world_size > static_cast<int>(kMostCount))
    throw_bad(path, fmt::format("rank {} of {}", about.rank, about.world_size));
  return about;
}

/// A record that was read, or nothing: the file ends within it, or it is damaged.
struct Read {
  bool is_whole = false;
  Header header;
  std::string payload;  // not of values
};

Read read_record(int fd, uint64_t at, uint64_t file_size) {
  Read read;
  if (file_size - at < sizeof(Header)) return read;
  const std::string bytes = read_at(fd, sizeof(Header), static_cast<off_t>(at));
  if (bytes.size() < sizeof(Header)) return read;
  std::memcpy(&read.header, bytes.data(), sizeof(Header));
  if (read.header.reserved != 0 || read.header.size > file_size - at - sizeof(Header)) return read;
  if (read.header.type == kValues) {
    read.is_whole = true;
    return read;
  }
  if (read.header.size > kMostPayload) return read;
  read.payload = read_at(fd, read.header.size, static_cast<off_t>(at + sizeof(Header)));
  read.is_whole = read.payload.size() == read.header.size && protocol::checksum(read.payload) == read.header.sum;
  return read;
}

}  // namespace

uint64_t checksum_of(const Sketch& sums) {
  return protocol::checksum({reinterpret_cast<const char*>(sums.data()), sizeof sums});
}

double resolution_of(Element element) { return has_short_sums(element) ? 0x1p-28 : 0; }

const char* name_of(PieceKind kind) {
  switch (kind) {
    case PieceKind::initial:
      return "initial value";
    case PieceKind::forward:
      return "output";
    case PieceKind::loss:
      return "loss";
    case PieceKind::backward:
      return "gradient of the output";
    case PieceKind::gradient:
      return "gradient";
    case PieceKind::parameter:
      return "value after the step";
  }
  return "";
}

std::vector<std::byte> Recording::values(const Piece& piece) const {
  const size_t size = static_cast<size_t>(count_of(piece.box.size)) * size_of(piece.element);
  const Descriptor file(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  std::string header = file ? read_at(file.get(), sizeof(Header), static_cast<off_t>(piece.values_at)) : "";
  Header record;
  if (header.size() == sizeof(Header)) std::memcpy(&record, header.data(), sizeof(Header));
  if (record.type != kValues || record.size != size) throw Error(path + " has changed since it was read");
  std::vector<std::byte> bytes(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = uninterrupted([&] {
      return ::pread(file.get(), bytes.data() + done, size - done,
                     static_cast<off_t>(piece.values_at + sizeof(Header) + done));
    });
    if (got <= 0) throw Error(path + " can't be read: " + (got < 0 ? std::strerror(errno) : "it was cut off"));
    done += static_cast<size_t>(got);
  }
  if (protocol::checksum({reinterpret_cast<const char*>(bytes.data()), size}) != record.sum)
    throw_bad(path, fmt::format("the values of {} have another checksum", names[piece.name].name));
  return bytes;
}

Recording read_recording(const std::string& path) {
  Recording recording;
  recording.path = path;
  const Descriptor file(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0) throw Error(path + " can't be read: " + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw Error(path + " is no file");
  const auto size = static_cast<uint64_t>(status.st_size);
  const std::string start = read_at(file.get(), kMagic.size() + sizeof(uint32_t));
  if (!start.starts_with(kMagic) || start.size() != kMagic.size() + sizeof(uint32_t))
    throw Error(path + " is no recording of lockstep compare");
  uint32_t version = 0;
  std::memcpy(&version, start.data() + kMagic.size(), sizeof(version));
  if (version != kRecordingVersion)
    throw Error(fmt::format("{} is a recording of version {}, and this lockstep reads version {}", path, version,
                            kRecordingVersion));
  bool has_about = false;
  for (uint64_t at = start.size(); at < size && !recording.is_complete;) {
    const Read record = read_record(file.get(), at, size);
    if (!record.is_whole) {
      recording.damaged_at = at;
      break;
    }
    if (!has_about && record.header.type != kAbout) throw_bad(path, "it does not begin with its description");
    switch (record.header.type) {
      case kAbout:
        recording.about = about_of(record.payload, path);
        has_about = true;
        break;
      case kName: {
        const size_t end = record.payload.find('\0');
        if (end == std::string::npos) throw_bad(path, "a name without an end");
        recording.names.push_back({record.payload.substr(0, end), record.payload.substr(end + 1)});
        break;
      }
      case kSamples:
        recording.samples.push_back(samples_of({record.payload}, recording));
        break;
      case kPiece:
        recording.pieces.push_back(piece_of({record.payload}, recording));
        break;
      case kValues: {
        if (recording.pieces.empty()) throw_bad(path, "values without a piece");
        Piece& piece = recording.pieces.back();
        if (record.header.size != static_cast<uint64_t>(count_of(piece.box.size)) * size_of(piece.element))
          throw_bad(path, "values of another size than their piece's");
        piece.values_at = at;
        break;
      }
      case kNote:
        recording.notes.push_back(record.payload);
        break;
      case kStep:
        ++recording.steps;
        break;
      case kEnd:
        recording.is_complete = true;
        break;
      default:
        throw_bad(path, fmt::format("a record of the unknown type {}", record.header.type));
    }
    at += sizeof(Header) + record.header.size;
  }
  if (!has_about) throw_bad(path, "it has no description");
  return recording;
}

RecordingWriter::RecordingWriter(const std::string& path, const RecordingAbout& about) : path_(path) {
  file_ =
      Descriptor(uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); }));
  if (!file_) throw Error("the recording " + path + " can't be written: " + std::strerror(errno));
  waiting_ = kMagic;
  put(waiting_, kRecordingVersion);
  add_record(kAbout, json({{"rank", about.rank},
                           {"world_size", about.world_size},
                           {"torch", about.torch},
                           {"steps", about.steps},
                           {"has_values", about.has_values},
                           {"noise", about.noise}})
                         .dump(-1, ' ', false, json::error_handler_t::replace));
  flush();  // a run without a step is a recording, too
}

RecordingWriter::~RecordingWriter() = default;

void RecordingWriter::write(std::string_view bytes) {
  if (!write_all(file_.get(), bytes))
    throw Error("the recording " + path_ + " can't be written: " + std::strerror(errno));
}

void RecordingWriter::flush() {
  write(waiting_);
  waiting_.clear();
}

void RecordingWriter::add_record(uint32_t type, std::string_view payload) {
  put(waiting_, Header{.type = type, .size = payload.size(), .sum = protocol::checksum(payload)});
  if (payload.size() > kFlushAt) {
    flush();
    write(payload);
    return;
  }
  waiting_ += payload;
  if (waiting_.size() > kFlushAt) flush();
}

uint32_t RecordingWriter::add_name(const PieceName& name) {
  add_record(kName, name.name + '\0' + name.type);
  return names_++;
}

void RecordingWriter::add_samples(const Samples& samples) {
  std::string bytes;
  put(bytes, samples.step);
  put(bytes, samples.micro_batch);
  for (const uint64_t each : samples.hashes) put(bytes, each);
  add_record(kSamples, bytes);
}

void RecordingWriter::add_piece(const Piece& piece, std::string_view values) {
  add_record(kPiece, piece_payload(piece));
  if (!values.empty()) add_record(kValues, values);
}

void RecordingWriter::add_note(std::string_view note) { add_record(kNote, note); }

void RecordingWriter::end_step() {
  add_record(kStep, {});
  flush();
}

void RecordingWriter::close() {
  add_record(kEnd, {});
  flush();
  if (!file_.reset()) throw Error("the recording " + path_ + " can't be written: " + std::strerror(errno));
}

}  // namespace lockstep::inspect::compare
