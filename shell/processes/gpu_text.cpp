#include "shell/processes/gpu_text.h"

#include <fmt/format.h>

#include <optional>

namespace lockstep::shell {
namespace {

std::string errors_text(const gpus::Gpu& gpu) {
  if (gpu.ecc && !*gpu.ecc) return "off";
  if (!gpu.uncorrected_errors && !gpu.corrected_errors) return "-";
  const auto words = [](const std::optional<int64_t>& count) { return count ? std::to_string(*count) : "?"; };
  return words(gpu.corrected_errors) + " corrected, " + words(gpu.uncorrected_errors) + " not";
}

std::string notes_text(const gpus::Gpu& gpu) {
  std::string text;
  const auto add = [&](const std::string& note) { text += (text.empty() ? "" : "; ") + note; };
  if (!gpu.problem.empty()) add(gpu.problem);
  if (gpu.slowed_by)
    for (const std::string& reason : *gpu.slowed_by) add("slowed by " + reason);
  if (gpu.mig.value_or(false)) add("split by MIG");
  return text;
}

}  // namespace

std::string gigabytes(int64_t bytes) { return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9); }

std::vector<std::string> gpu_header() {
  return {"GPU", "name", "memory in use", "busy", "temperature", "ECC errors", "notes"};
}

std::vector<std::string> gpu_row(const gpus::Gpu& gpu) {
  std::string memory = "-";
  if (gpu.used_bytes && gpu.total_bytes) memory = gigabytes(*gpu.used_bytes) + " of " + gigabytes(*gpu.total_bytes);
  return {std::to_string(gpu.index),
          gpu.name.empty() ? "-" : gpu.name,
          memory,
          gpu.gpu_percent ? fmt::format("{}%", *gpu.gpu_percent) : "-",
          gpu.temperature ? fmt::format("{} °C", *gpu.temperature) : "-",
          errors_text(gpu),
          notes_text(gpu)};
}

}  // namespace lockstep::shell
