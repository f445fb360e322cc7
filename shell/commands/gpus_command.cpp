// `lockstep gpus` shows the GPUs of this machine as NVML reports them. With --lines it is the process that
// %dist_status, doctor and `lockstep gpus` itself have ask NVML, and that they leave when it is stuck.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "shell/commands/command.h"
#include "shell/processes/gpu_lookup.h"
#include "shell/processes/gpu_text.h"
#include "shell/session/outcome.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

// A driver without persistence mode starts each GPU for the question.
constexpr std::chrono::seconds kLimit{20};

struct GpusOptions {
  bool as_json = false, as_lines = false;
};

int write_lines() {
  gpus::write_lines([](const std::string& line) {
    const std::string text = line + "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
  });
  return kExitOk;
}

int show_gpus(const GpusOptions& options) {
  if (options.as_lines) return write_lines();
  const gpus::Machine machine = look_at_gpus(kLimit);
  const bool is_known = machine.problem.empty();
  if (options.as_json) {
    const nlohmann::json report = {{"problem", is_known ? nlohmann::json() : nlohmann::json(machine.problem)},
                                   {"driver", machine.driver},
                                   {"cuda", machine.cuda},
                                   {"gpus", machine.gpus}};
    std::puts(report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return is_known ? kExitOk : kExitNoStart;
  }
  if (!is_known) {
    std::fprintf(stderr, "lockstep gpus: %s\n", machine.problem.c_str());
    return kExitNoStart;
  }
  std::vector<std::vector<std::string>> rows = {gpu_header()};
  for (const gpus::Gpu& gpu : machine.gpus) rows.push_back(gpu_row(gpu));
  std::printf("driver %s, CUDA up to %d.%d\n%s", machine.driver.c_str(), machine.cuda / 1000, machine.cuda % 1000 / 10,
              table(rows).c_str());
  return kExitOk;
}

std::function<int()> set_up_gpus(CLI::App& app) {
  auto options = std::make_shared<GpusOptions>();
  app.add_flag("--json", options->as_json, "One JSON object rather than a table");
  app.add_flag("--lines", options->as_lines, "A line of JSON for each GPU as soon as it has answered");
  app.footer("Exit codes: 0 the driver has answered; 3 there is no driver, or it does not answer.");
  return [options] { return show_gpus(*options); };
}

const RegisterCommand kGpus({"gpus", "The GPUs of this machine: memory of all processes, load, heat, errors",
                             set_up_gpus});

}  // namespace
}  // namespace lockstep::shell
