// Flushes the buffers of stdio and iostreams.
#pragma once

namespace lockstep::worker {

/// Writes out the buffers of stdio and iostreams of this process.
void flush_standard_streams();

}  // namespace lockstep::worker
