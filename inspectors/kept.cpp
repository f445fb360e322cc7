#include "inspectors/kept.h"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "inspectors/exchange/participants.h"
#include "inspectors/findings/about.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

/// Each thread has its own, since ranks may be threads. Never destroyed, as the objects of cells.
std::map<std::string, Watch>& watches() {
  static thread_local auto* all = new std::map<std::string, Watch>;
  return *all;
}
std::map<std::string, GradWatch>& grad_watches() {
  static thread_local auto* all = new std::map<std::string, GradWatch>;
  return *all;
}

void report(const char* inspector, const std::string& name, const std::string& message) {
  const RankSet ranks = live_ranks();
  Finding found =
      About{.inspector = inspector, .object = name, .step = {}, .ranks = ranks}.finding(Severity::note, Verdict::ok);
  found.message = message;
  Report report{.findings = {std::move(found)}};
  report.took_part = ranks;
  publish_from_reporting_rank(report);
}

/// Removes `name`, or all if it is empty, and reports the text that `each` returns for what was removed.
template <typename Kept, typename Each>
void end(std::map<std::string, Kept>& all, const std::string& name, const char* inspector, Each&& each) {
  if (!name.empty() && !all.contains(name)) return report(inspector, name, "was not watched");
  for (auto kept = all.begin(); kept != all.end();) {
    if (!name.empty() && kept->first != name) {
      ++kept;
      continue;
    }
    report(inspector, kept->first, each(kept->second));
    kept = all.erase(kept);
  }
}

}  // namespace

void keep_watch(const std::string& name, int64_t every, std::function<Subject()> subject, VerifyOptions options) {
  watches().erase(name);
  watches().emplace(name, Watch(std::move(subject), every, std::move(options)));
}

void end_watch(const std::string& name) {
  end(watches(), name, "verify", [](const Watch& watching) {
    const WatchCost cost = watching.cost();
    return fmt::format("no longer watched: {} in {}, {:.1f} ms each, {:.2g}% of the time",
                       counted(cost.checks, "check"), counted(cost.steps, "step"),
                       cost.checks ? cost.seconds * 1e3 / static_cast<double>(cost.checks) : 0.0,
                       cost.of_seconds > 0 ? 100 * cost.seconds / cost.of_seconds : 0.0);
  });
}

void keep_grad_watch(const std::string& name, GradWatch watching) {
  grad_watches().erase(name);
  grad_watches().emplace(name, std::move(watching));
}

void end_grad_watch(const std::string& name) {
  end(grad_watches(), name, "grads", [](const GradWatch& watching) {
    const GradWatch::Cost cost = watching.cost();
    return fmt::format("gradients no longer watched: {} seen, {:.1f} ms in all", counted(cost.gradients, "gradient"),
                       cost.seconds * 1e3);
  });
}

}  // namespace lockstep::inspect
