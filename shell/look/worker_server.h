// Asks the server that torch runs in a rank (torch.distributed.elastic.control_plane.worker_main,
// torch.distributed.debug.start_debug_server) for its Flight Recorder. A thread of its own answers, whatever the program does.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::shell {

/// Returns the Flight Recorders of a rank as JSON, those of Gloo and of NCCL; none where it runs no such server. `socket`:
/// the value of TORCH_WORKER_SERVER_SOCKET there. Ports are asked only of a process with threads of that server.
std::vector<std::string> ask_worker_server(int64_t pid, const std::string& socket, std::chrono::milliseconds limit);

}  // namespace lockstep::shell
