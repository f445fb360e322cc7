// What a magic leaves on for the cells to come, under the words that it was given: `%verify net --every 10`, `%grads
// net --watch on`. A session's own; a program keeps the handles of watch() and watch_grads() itself. By the rank's own
// thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "inspectors/grads/watch.h"
#include "inspectors/verify/watch.h"

namespace lockstep::inspect {

/// Takes the place of what was kept under `name`. `subject` is asked at each check. Every rank calls it.
void keep_watch(const std::string& name, int64_t every, std::function<Subject()> subject, VerifyOptions options);
/// Ends it, or all where `name` is empty. The lowest rank tells, as a finding, how often it was checked and what that
/// cost.
void end_watch(const std::string& name);

void keep_grad_watch(const std::string& name, GradWatch watching);
void end_grad_watch(const std::string& name);

}  // namespace lockstep::inspect
