// A recording is what one rank computed in its first steps: a file of records (docs/compare.md#the-file). A rank of the
// candidate has a sketch of each piece; the reference has the values as well, so that any part can be cut out of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspectors/compare/sketch.h"
#include "protocol/descriptor.h"

namespace lockstep::inspect::compare {

constexpr uint32_t kRecordingVersion = 2;

/// What a piece is. The numbers are those of files.
enum class PieceKind : uint8_t { initial, forward, loss, backward, gradient, parameter };
constexpr uint8_t kPieceKinds = 6;
/// Returns words for people: "gradient of output".
const char* name_of(PieceKind kind);

/// A piece of a tensor: of the value that one call of a module returned in one micro-batch, of a parameter.
struct Piece {
  enum Flag : uint8_t {
    placed = 1,  // a DTensor has said which part it is; otherwise it is a tensor of its own shape
    partial = 2,  // its sum over the ranks of a group is the value
    absent = 4,  // there is no tensor: a parameter without a gradient
    is_mean = 8,  // of a partial one: its mean, not its sum
    flat = 16  // its box is a range of the elements of the whole in row-major order
  };
  uint32_t step = 0, name = 0, micro_batch = 0, call = 0;
  PieceKind kind = PieceKind::forward;
  Element element = Element::float32;
  uint8_t flags = 0;
  int32_t lead = 0;  // of a partial one: the lowest rank of the group over which it is added
  Box box;
  /// A file has the sums of float32, bfloat16 and float16 with 28 bits behind the point, by which they are read.
  Summary summary;
  uint64_t checksum = 0;  // of the sums before the file rounded them; read from the file
  uint64_t values_at = 0;  // in the file; 0: it has no values
};

/// Returns the checksum of sums that no file has rounded.
uint64_t checksum_of(const Sketch& sums);
/// Returns the largest relative distance of two pieces' sums that have the same bits in a file, but other checksums.
double resolution_of(Element element);

/// The samples of one micro-batch, each by a hash of its content, in the order of the batch.
struct Samples {
  uint32_t step = 0, micro_batch = 0;
  std::vector<uint64_t> hashes;
};

struct PieceName {
  std::string name;  // "blocks.1.ln1.weight"
  std::string type;  // of the module: "LayerNorm"; empty for parameters
};

struct RecordingAbout {
  int rank = 0, world_size = 1;
  std::string torch;
  int64_t steps = 0;  // that were asked for
  bool has_values = false;
  double noise = 0;  // 0: nothing was perturbed; otherwise the run's number, from 1
};

struct Recording {
  std::string path;
  RecordingAbout about;
  std::vector<PieceName> names;
  std::vector<Samples> samples;
  std::vector<Piece> pieces;  // in the order in which they came
  std::vector<std::string> notes;  // what the recorder did or could not record, in words
  int64_t steps = 0;  // that were recorded to their end
  bool is_complete = false;  // false: the process ended while it recorded, or the file was cut off
  std::optional<uint64_t> damaged_at;  // the byte at which the first record begins that is damaged or cut off

  /// Reads the values of a piece that has some. Throws Error where the file has become unreadable or they are damaged.
  std::vector<std::byte> values(const Piece& piece) const;
};

/// Reads a recording. Records after a damaged one or a cut are left out, and the recording is not complete then. Throws
/// Error for a file that can't be read, is no recording, or has another version or a record that makes no sense.
Recording read_recording(const std::string& path);

/// Writes a recording. One thread at a time may use it.
class RecordingWriter {
 public:
  /// Makes the file, or empties it. Throws Error.
  RecordingWriter(const std::string& path, const RecordingAbout& about);
  ~RecordingWriter();
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  /// Returns the number by which pieces refer to the name.
  uint32_t add_name(const PieceName& name);
  void add_samples(const Samples& samples);
  /// `values` are those of the piece; empty where the file has only its sketch.
  void add_piece(const Piece& piece, std::string_view values = {});
  void add_note(std::string_view note);
  /// Writes what is waiting; the file is complete up to here.
  void end_step();
  void close();

 private:
  void add_record(uint32_t type, std::string_view payload);
  void write(std::string_view bytes);
  void flush();

  std::string path_;
  Descriptor file_;
  std::string waiting_;
  uint32_t names_ = 0;
};

}  // namespace lockstep::inspect::compare
