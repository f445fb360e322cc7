// %dist_status shows what every rank is and does.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "shell/processes/gpu_lookup.h"
#include "shell/processes/gpu_text.h"
#include "shell/session/session_core.h"
#include "shell/session/timing.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

// The driver answers in milliseconds unless a GPU is lost.
constexpr std::chrono::seconds kDriverLimit{2};

std::string megabytes(std::optional<int64_t> bytes) {
  return bytes ? fmt::format("{:.0f} MB", static_cast<double>(*bytes) / 1e6) : std::string("-");
}

/// Has the GPUs that ranks use, with the ranks of each.
class GpusOfRanks {
 public:
  explicit GpusOfRanks(gpus::Machine machine) : machine_(std::move(machine)) {}

  /// Adds the GPU of this rank, by the address that the rank gives. Returns null where it is not known.
  const gpus::Gpu* add(int rank, const protocol::question::Status::Answer& status) {
    const std::string address = gpus::normal_bus_id(status.device_bus_id.value_or(""));
    const auto gpu = std::ranges::find(machine_.gpus, address, &gpus::Gpu::bus_id);
    if (address.empty() || gpu == machine_.gpus.end()) return nullptr;
    ranks_[gpu->index].insert(rank);
    return &*gpu;
  }

  std::string text() const {
    if (!machine_.problem.empty()) return "GPUs: " + machine_.problem + "\n";
    std::vector<std::vector<std::string>> rows = {gpu_header()};
    rows[0].insert(rows[0].begin() + 1, "ranks");
    for (const gpus::Gpu& gpu : machine_.gpus) {
      const auto ranks = ranks_.find(gpu.index);
      // A GPU that does not answer may be that of a rank.
      if (ranks == ranks_.end() && gpu.problem.empty()) continue;
      rows.push_back(gpu_row(gpu));
      rows.back().insert(rows.back().begin() + 1, ranks == ranks_.end() ? "?" : ranks->second.str());
    }
    return rows.size() > 1 ? table(rows) : std::string();
  }

  nlohmann::json data() const {
    nlohmann::json list = nlohmann::json::array();
    for (const gpus::Gpu& gpu : machine_.gpus) {
      list.push_back(gpu);
      const auto ranks = ranks_.find(gpu.index);
      list.back()["ranks"] = ranks == ranks_.end() ? RankSet() : ranks->second;
    }
    return {{"problem", machine_.problem.empty() ? nlohmann::json() : nlohmann::json(machine_.problem)},
            {"driver", machine_.driver},
            {"gpus", list}};
  }

 private:
  gpus::Machine machine_;
  std::map<int, RankSet> ranks_;
};

/// Returns what the process uses of its GPU, as the driver counts it.
std::optional<int64_t> bytes_of(const gpus::Gpu& gpu, int64_t pid) {
  const auto process = std::ranges::find(gpu.processes, pid, &gpus::GpuProcess::pid);
  return process == gpu.processes.end() ? std::nullopt : process->bytes;
}

/// Returns "all_reduce #12 since 3.1 s", for a collective that the rank sits in.
std::string collective_text(const std::optional<protocol::question::Collective>& collective) {
  if (!collective) return "-";
  std::string words;  // of a collective on a device
  if (const auto& stage = collective->stage)
    words = stage == "waiting_for_stream" ? ", waiting for its stream" : ", " + *stage;
  return fmt::format("{} #{} since {}{}", collective->op, collective->seq,
                     duration_text(collective->entered_s_ago * 1000), words);
}

CellOutcome dist_status(MagicCall& call) {
  if (!call.session.started()) {
    call.session.message("no ranks are running: %dist_init, or the next cell, starts them",
                         {{"ranks", nlohmann::json::array()}});
    return {};
  }
  bool on_gpus = false;
  for (int rank = 0; rank < call.session.world_size(); ++rank)
    on_gpus = on_gpus || call.session.describe_rank(rank).device.starts_with("cuda");
  const auto lookup = on_gpus ? std::make_unique<GpuLookup>(call.session.loop()) : nullptr;
  const auto answers = call.session.query(call.session.live_ranks(), protocol::question::Status());
  GpusOfRanks of_ranks(lookup ? lookup->finish(kDriverLimit) : gpus::Machine());
  std::vector<std::vector<std::string>> rows = {
      {"rank", "state", "pid", "host", "device", "memory", "cell", "collective"}};
  nlohmann::json data = nlohmann::json::array();
  for (int rank = 0; rank < call.session.world_size(); ++rank) {
    const RankDescription known = call.session.describe_rank(rank);
    if (call.session.options().replay && known.dead) continue;  // it was never there
    const auto answer = answers.find(rank);
    const auto status = answer == answers.end() ? protocol::question::Status::Answer() : answer->second;
    std::optional<RankState> known_state;
    if (known.dead)
      known_state = RankState::dead;
    else if (answer != answers.end() && status.error.empty())
      known_state = status.state;
    const std::string state(known.away ? "away" : known_state ? to_string(*known_state) : "no answer");
    const bool in_cell = known_state == RankState::running || known_state == RankState::waiting;
    std::string cell = "-";
    if (in_cell) cell = fmt::format("{} since {}", known.cell, duration_text(status.since_s * 1000));
    if (in_cell && status.on_device) cell += ", on the device";
    std::string memory = megabytes(status.rss_bytes);
    const gpus::Gpu* gpu = of_ranks.add(rank, status);
    const auto device_bytes = gpu ? bytes_of(*gpu, known.pid) : std::nullopt;
    if (device_bytes) memory = megabytes(device_bytes) + " (host " + memory + ")";
    const std::string pid = known.pid > 0 ? std::to_string(known.pid) : "-";  // a new rank may not have started yet
    rows.push_back(
        {std::to_string(rank), state, pid, known.host, known.device, memory, cell, collective_text(status.collective)});
    nlohmann::json entry = answer == answers.end() ? nlohmann::json::object() : protocol::encode_answer(status);
    entry.update({{"rank", rank},
                  {"state", state},
                  {"pid", known.pid},
                  {"host", known.host},
                  {"device", known.device},
                  {"intra_op_threads", known.threads}});
    if (lookup) {
      entry["gpu"] = gpu ? nlohmann::json(gpu->index) : nlohmann::json();
      entry["device_memory_bytes"] = device_bytes ? nlohmann::json(*device_bytes) : nlohmann::json();
    }
    entry["cell"] = in_cell ? nlohmann::json(known.cell) : nlohmann::json(nullptr);
    data.push_back(std::move(entry));
  }
  nlohmann::json all = {{"ranks", std::move(data)}};
  std::string text = table(rows) + protocol::errors_in(answers);
  if (lookup) {
    text += of_ranks.text();
    all.update(of_ranks.data());
  }
  call.session.message(std::move(text), std::move(all));
  return {};
}

const RegisterMagic kDistStatus(
    {.name = "dist_status",
     .summary = "per rank: state, pid, host, device and memory, cell, collective, and for how long",
     .help =
         "Answered by the ranks also while their cells run. Ranks on GPUs: also the GPUs, as the driver reports them "
         "(memory of all\n"
         "processes, load, temperature, ECC errors, why clocks are low). A GPU that does not answer is shown so "
         "after 2 s.",
     .line = dist_status,
     .at_any_time = true,
     .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
