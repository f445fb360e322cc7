// lockstep-worker --verify FD compares saved replicas for `lockstep verify`, which has no LibTorch of its own.
#pragma once

namespace lockstep::worker {

/// Reads {"paths": [...], "rtol": null, "atol": null} from the socket `fd` until its end, and writes the reply:
/// {"findings": [...], "tensors": N, "bytes": N, "seconds": S}, or {"error": "..."} for files that can't be read.
/// Returns the exit code: 0 where a reply was written.
int verify_saved(int fd);

}  // namespace lockstep::worker
