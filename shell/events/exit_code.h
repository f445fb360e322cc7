// Has the exit codes of `lockstep run`, as docs/events.md and `lockstep run --help` describe them.
#pragma once

namespace lockstep::shell {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitNoStart = 3, kExitHang = 4, kExitDeath = 5,
                     kExitInterrupted = 130;

}  // namespace lockstep::shell
