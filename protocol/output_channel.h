// A rank's output leaves its process through a pipe, and behind it a log in memory that outlives the process.
//
//   cells → pipe → log → messages to the hub
//
// The worker moves bytes from the pipe to the log with splice(2), so the size of the log is at every moment the count
// of bytes that have left the pipe, also when SIGKILL comes in the middle. What the hub has confirmed is cut out of the
// log's front (a hole: its offsets stay). After the worker's death the shell, which holds the same descriptors, reads
// what the log has beyond the bytes that it received, and then what is left in the pipe.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/status.h"

namespace lockstep::protocol {

inline constexpr std::array kStreams = {Stream::standard_output, Stream::standard_error};
/// Returns the index of a stream in OutputChannels and in counts of bytes.
constexpr size_t index_of(Stream stream) { return static_cast<size_t>(stream); }

/// The owner of the descriptors closes them.
struct OutputChannel {
  int read = -1, write = -1;  // ends of the pipe; `read` does not block
  int log = -1;  // memory file
};
using OutputChannels = std::array<OutputChannel, 2>;  // of stdout and stderr

/// Makes new channels, close-on-exec. Throws std::system_error.
OutputChannels make_output_channels();
void close_output_channels(OutputChannels& channels);

/// Returns the value of LOCKSTEP_OUTPUT_FDS, which a worker inherits: "READ,WRITE,LOG READ,WRITE,LOG".
std::string output_channels_text(const OutputChannels& channels);
/// Returns nothing where the text names no six open descriptors.
std::optional<OutputChannels> parse_output_channels(std::string_view text);

}  // namespace lockstep::protocol
