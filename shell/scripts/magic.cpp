#include "shell/scripts/magic.h"

#include "protocol/error.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {

std::string help_of(const Magic& magic) {
  return magic.usage + "\n    " + magic.summary + (magic.help.empty() ? "" : "\n\n" + magic.help);
}

MagicRegistry& MagicRegistry::instance() {
  static MagicRegistry registry;
  return registry;
}

void MagicRegistry::add(Magic magic) {
  std::string name = magic.name;
  magics_.insert_or_assign(std::move(name), std::move(magic));
}

bool MagicRegistry::knows(std::string_view name) const { return magics_.contains(name); }

const Magic& MagicRegistry::find(std::string_view name, bool cell_magic) const {
  const std::string prefix = cell_magic ? "%%" : "%";
  const auto found = magics_.find(name);
  if (found == magics_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, magic] : magics_)
      if (cell_magic ? magic.cell != nullptr : magic.line != nullptr) names.push_back(known);
    throw UsageError("there is no magic " + prefix + std::string(name) + did_you_mean(name, names, prefix) +
                     " (%help lists all)");
  }
  const Magic& magic = found->second;
  if (cell_magic && !magic.cell)
    throw UsageError("%" + magic.name + " is a line magic: write it with one %, as " + magic.usage);
  if (!cell_magic && !magic.line)
    throw UsageError("%%" + magic.name + " is a cell magic: write it with two %, in the first line of the cell");
  return magic;
}

std::vector<const Magic*> MagicRegistry::all() const {
  std::vector<const Magic*> result;
  for (const auto& [name, magic] : magics_) result.push_back(&magic);
  return result;
}

std::vector<const Magic*> MagicRegistry::available(bool in_job) const {
  std::vector<const Magic*> result;
  for (const auto& [name, magic] : magics_)
    if (in_job ? magic.in_jobs || magic.only_in_jobs || magic.job_line : !magic.only_in_jobs) result.push_back(&magic);
  return result;
}

}  // namespace lockstep::shell
