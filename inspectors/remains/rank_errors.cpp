#include "inspectors/remains/rank_errors.h"

#include <algorithm>
#include <array>

namespace lockstep::inspect::judging {

bool is_mismatch(const RankError& error) {
  return error.message.find("All ranks of a group must make the same calls in the same order") != std::string::npos;
}

bool is_size_mismatch(const RankError& error) {
  return error.message.find("op.preamble.length <= op.nbytes") != std::string::npos;
}

bool is_consequence(const RankError& error) {
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  // torchrun raises these because a rank has ended.
  if (has(error.type, "ChildFailedError") || has(error.type, "SignalException")) return true;
  // Transports raise RuntimeError and torch.distributed.Dist…Error, also for what is a rank's own fault, such as a port
  // in use: their words decide. Other types are raised for connections of the program, to a storage server say.
  constexpr std::array kOfPython = {"BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError",
                                    "ConnectionRefusedError"};
  if (std::ranges::find(kOfPython, error.type) != kOfPython.end()) return false;
  const bool of_a_module = error.type.find('.') != std::string::npos;
  if (of_a_module && !error.type.starts_with("torch.") && !error.type.starts_with("lockstep.")) return false;
  constexpr std::array kWords = {"Connection closed by peer",
                                 "Connection reset by peer",
                                 "Broken pipe",
                                 "Watchdog caught collective operation timeout",
                                 "Timed out waiting",
                                 "waiting for clients",
                                 "wait timeout after",
                                 "Socket Timeout",
                                 "client socket has timed out",
                                 "ailed to recv, got 0 bytes",
                                 "remote process exited or there was a network error",
                                 "communicator was aborted",
                                 "connectFullMesh",
                                 "remote process has terminated",
                                 "ncclRemoteError",
                                 "failed to pass monitoredBarrier",
                                 "Application timeout caused pair closure",
                                 " left the collective ",
                                 "a rank left ",
                                 " was shut down because ",
                                 " did not end within its time limit of "};
  return std::ranges::any_of(kWords, [&](const char* each) { return has(error.message, each); });
}

}  // namespace lockstep::inspect::judging
