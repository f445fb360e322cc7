// %dist_status: what every rank is and does.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/session/timing.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

std::string megabytes(const nlohmann::json& bytes) {
  return bytes.is_number() ? fmt::format("{:.0f} MB", bytes.get<double>() / 1e6) : std::string("-");
}

/// "all_reduce #12 since 3.1 s", of a collective that the rank sits in.
std::string collective_text(const nlohmann::json& collective) {
  if (!collective.is_object()) return "-";
  const auto stage = collective.value("stage", nlohmann::json());
  std::string words;  // of a collective on a device
  if (stage.is_string())
    words = stage == "waiting_for_stream" ? ", waiting for its stream" : ", " + stage.get<std::string>();
  return fmt::format("{} #{} since {}{}", collective.value("op", "?"), collective.value("seq", int64_t{0}),
                     duration_text(collective.value("entered_s_ago", 0.0) * 1000), words);
}

CellOutcome dist_status(MagicCall& call) {
  if (!call.arguments.empty()) throw UsageError("%dist_status takes nothing");
  if (!call.session.started()) {
    call.session.message("no ranks are running: %dist_init, or the next cell, starts them",
                         {{"ranks", nlohmann::json::array()}});
    return {};
  }
  const auto answers = call.session.query(call.session.live_ranks(), "status");
  std::vector<std::vector<std::string>> rows = {
      {"rank", "state", "pid", "host", "device", "memory", "cell", "collective"}};
  nlohmann::json data = nlohmann::json::array();
  for (int rank = 0; rank < call.session.world_size(); ++rank) {
    const RankDescription known = call.session.describe_rank(rank);
    const auto answer = answers.find(rank);
    const nlohmann::json status = answer == answers.end() ? nlohmann::json::object() : answer->second;
    std::optional<RankState> known_state;
    if (known.dead)
      known_state = RankState::dead;
    else if (status.contains("state"))
      known_state = status["state"].get<RankState>();
    const std::string state(known_state ? to_string(*known_state) : "no answer");
    const bool in_cell = known_state == RankState::running || known_state == RankState::waiting;
    std::string cell = "-";
    if (in_cell) cell = fmt::format("{} since {}", known.cell, duration_text(status.value("since_s", 0.0) * 1000));
    const auto collective = status.value("collective", nlohmann::json());
    const auto device_bytes = status.value("device_memory_bytes", nlohmann::json());
    std::string memory = megabytes(status.value("rss_bytes", nlohmann::json()));
    if (device_bytes.is_number()) memory = megabytes(device_bytes) + " (host " + memory + ")";
    rows.push_back({std::to_string(rank), state, std::to_string(known.pid), known.host, known.device, memory, cell,
                    collective_text(collective)});
    nlohmann::json entry = status;
    entry.update({{"rank", rank},
                  {"state", state},
                  {"pid", known.pid},
                  {"host", known.host},
                  {"device", known.device},
                  {"intra_op_threads", known.threads}});
    entry["cell"] = in_cell ? nlohmann::json(known.cell) : nlohmann::json(nullptr);
    data.push_back(std::move(entry));
  }
  call.session.message(table(rows), {{"ranks", std::move(data)}});
  return {};
}

const RegisterMagic kDistStatus(
    {.name = "dist_status",
     .usage = "%dist_status",
     .summary = "per rank: state, pid, host, device and memory, cell, collective, and for how long",
     .help = "Answered by the ranks also while their cells run.",
     .line = dist_status,
     .cell = {},
     .at_any_time = true});

}  // namespace
}  // namespace lockstep::shell
