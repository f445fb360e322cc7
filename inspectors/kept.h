// Keeps watches that magics start for later cells, by the expression in the magic: `%verify net --every 10`, `%grads
// net --watch on`. It is for sessions; a program keeps the handles of watch() and watch_grads() itself. Used by the
// rank's own thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "inspectors/grads/watch.h"
#include "inspectors/verify/watch.h"

namespace lockstep::inspect {

/// Replaces the watch with this name. `subject` is called at each check. Every rank calls it.
void keep_watch(const std::string& name, int64_t every, std::function<Subject()> subject, VerifyOptions options);
/// Ends the watch; an empty `name` ends all. The lowest rank reports the number and cost of its checks, as a finding.
void end_watch(const std::string& name);

void keep_grad_watch(const std::string& name, GradWatch watching);
void end_grad_watch(const std::string& name);

}  // namespace lockstep::inspect
