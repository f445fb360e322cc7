// Logs process groups of a watched job that have another backend than `lockstep`, with torch 2.14 or newer: c10d calls
// hooks before and after it issues a collective, so that the log has these groups, too, and their calls are compared.
#pragma once
#include <nlohmann/json.hpp>

#include "collectives/transport/libtorch_version.h"
#include "python/operators/call.h"

namespace lockstep::python {

/// Whether c10d has the hooks.
inline constexpr bool kHasHooks = LOCKSTEP_C10D_HAS_WINDOW;

/// Logs the collectives of a group from here on. Local; sends and waits for nothing: the logs of the other ranks are
/// found in the job's folder. A rank whose call differs from one that another rank has made raises the error of the
/// backend `lockstep`, before data moves. Ranks that wait in the transport are not freed by that, but by its end.
/// `send` and `recv` are left to the Flight Recorder, since Gloo does not report their end.
///
/// Arguments: "group" (c10d's name), "rank" and "ranks" as for make_job_backend, "global_rank", "world_size", "timeout"
/// (seconds), "check" (whether calls are compared). Throws dist::Error without a job's folder, and where c10d has no hooks.
nlohmann::json hook_group(const Call& call);

}  // namespace lockstep::python
