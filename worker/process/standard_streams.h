// Flushes the buffers of stdio and iostreams.
#pragma once

namespace lockstep::worker {

/// Hands on what stdio and iostreams of this process hold back.
void flush_standard_streams();

}  // namespace lockstep::worker
