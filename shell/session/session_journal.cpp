#include "shell/session/session_journal.h"

#include <filesystem>

#include "protocol/json_fields.h"

namespace lockstep::shell {
namespace {

/// Holds what the cells of a session see of its options.
struct KeptOptions {
  std::vector<int> gpu_ids;
  bool share_gpu = false, all_gpus_visible = false;
  std::string backend = "auto";
  std::vector<std::string> include_dirs;
  std::map<std::string, std::string> arguments;
  std::optional<std::string> python;
};
LOCKSTEP_JSON(KeptOptions, gpu_ids, share_gpu, all_gpus_visible, backend, include_dirs, arguments, python)

}  // namespace

JournalLimits limits_of_journal(const SessionOptions& options) {
  JournalLimits limits = journal_limits();
  if (options.journal_mb) limits.output_mb = *options.journal_mb;
  if (!options.keeps_journal || options.rehearsal) limits.is_off = true;
  return limits;
}

nlohmann::json description_for_journal(const SessionOptions& options, const std::string& directory) {
  KeptOptions kept{.gpu_ids = options.gpu_ids,
                   .share_gpu = options.share_gpu,
                   .all_gpus_visible = options.all_gpus_visible,
                   .backend = options.backend,
                   .include_dirs = options.include_dirs,
                   .arguments = options.arguments,
                   .python = options.python};
  std::error_code ignored;
  for (std::string& folder : kept.include_dirs) folder = std::filesystem::absolute(folder, ignored).string();
  return {{"language", options.has_python_ranks() ? "python" : "cpp"},
          {"job", options.job ? nlohmann::json(*options.job) : nlohmann::json(nullptr)},
          {"hosts", options.hosts},
          {"directory", directory},
          {"options", kept}};
}

void set_options_as(const nlohmann::json& description, int ranks, SessionOptions& options) {
  KeptOptions kept;
  try {
    kept = description.at("options").get<KeptOptions>();
  } catch (const nlohmann::json::exception&) {
    if (description.value("language", "") == "python") kept.python = "";
  }
  const bool is_given = options.num_processes || !options.gpu_ids.empty() || !options.is_here();
  if (!is_given && !kept.gpu_ids.empty())
    options.gpu_ids = kept.gpu_ids;
  else if (!is_given && ranks > 0)
    options.num_processes = ranks;
  options.share_gpu = options.share_gpu || kept.share_gpu;
  options.all_gpus_visible = options.all_gpus_visible || kept.all_gpus_visible;
  if (options.backend == "auto") options.backend = kept.backend;
  options.include_dirs.insert(options.include_dirs.end(), kept.include_dirs.begin(), kept.include_dirs.end());
  options.arguments.insert(kept.arguments.begin(), kept.arguments.end());
  if (!options.python) options.python = kept.python;
}

}  // namespace lockstep::shell
