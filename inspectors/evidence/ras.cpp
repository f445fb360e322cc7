#include "inspectors/evidence/ras.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "inspectors/evidence/async_errors.h"
#include "inspectors/evidence/deadline_socket.h"
#include "inspectors/evidence/json_value.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

constexpr const char* kDefaultAddress = "localhost:28028";

/// NCCL 2.28 writes no comma after the nvml_dev of a missing rank, so that its answers are not JSON exactly when a rank
/// is missing. This puts it there: between a number and a "status" on the next line.
std::string with_missing_commas(std::string_view text) {
  constexpr std::string_view kField = "\"nvml_dev\":";
  std::string result;
  while (true) {
    const size_t field = text.find(kField);
    if (field == std::string_view::npos) break;
    size_t at = field + kField.size();
    while (at < text.size() &&
           (text[at] == ' ' || text[at] == '-' || std::isdigit(static_cast<unsigned char>(text[at]))))
      ++at;
    result += text.substr(0, at);
    text.remove_prefix(at);
    const size_t next = text.find_first_not_of(" \t\r\n");
    if (next != std::string_view::npos && text.substr(next).starts_with("\"status\"")) result += ',';
  }
  return result += text;
}

EvidenceMember member_of(const JsonAt& rank) {
  EvidenceMember member;
  const int64_t number = rank.at("rank").integer();
  if (number < 0 || number > INT32_MAX) rank.at("rank").fail("is no rank");
  member.group_rank = static_cast<int>(number);
  if (rank.find("host")) member.host = rank.at("host").text();
  if (rank.find("pid")) member.pid = rank.at("pid").integer();
  if (rank.find("cuda_dev")) {
    const int64_t device = rank.at("cuda_dev").integer();
    if (device >= -1 && device <= INT32_MAX) member.device = static_cast<int>(device);
  }
  return member;
}

void take_status(EvidenceMember& member, const JsonAt& rank) {
  if (rank.find("status")) {
    const JsonAt status = rank.at("status");
    const auto flag = [&](const char* name) { return status.find(name) && status.at(name).boolean(); };
    const auto result = [&](const char* name) {
      const int64_t value = status.find(name) ? status.at(name).integer() : 0;
      return NcclResult{value};
    };
    const NcclResult init = result("init_state"), error = result("async_error");
    member.initializing = init.in_progress();
    const NcclResult& shown = error.words().empty() ? init : error;
    member.error = shown.words();
    member.remote = shown.remote();
    member.finalizing = flag("finalize_called");
    member.destroyed = flag("destroy_flag");
    member.aborted = flag("abort_flag");
  }
  if (!rank.find("collective_counts")) return;
  const JsonAt counts = rank.at("collective_counts");
  for (const auto& [name, unused] : counts.object().items())
    member.counts[op_of(name)] += counts.at(name.c_str()).integer();
}

EvidenceGroup group_of(const JsonAt& communicator) {
  EvidenceGroup group;
  group.name = communicator.at("hash").text();
  if (communicator.find("secondary_hash")) group.name += " " + communicator.at("secondary_hash").text();
  const int64_t size = communicator.at("size").integer();
  if (size < 0 || size > INT32_MAX) communicator.at("size").fail("is out of range");
  group.size = static_cast<int>(size);
  const JsonAt ranks = communicator.at("ranks");
  for (size_t i = 0; i < ranks.array().size(); ++i) {
    EvidenceMember member = member_of(ranks.item(i));
    take_status(member, ranks.item(i));
    group.members.push_back(std::move(member));
  }
  if (!communicator.find("missing_ranks")) return group;
  const JsonAt missing = communicator.at("missing_ranks");
  for (size_t i = 0; i < missing.array().size(); ++i) {
    EvidenceMember member = member_of(missing.item(i));
    member.missing = true;
    if (missing.item(i).find("status")) {
      const JsonAt status = missing.item(i).at("status");
      member.unresponsive = status.find("unresponsive") && status.at("unresponsive").boolean();
      member.dead = status.find("considered_dead") && status.at("considered_dead").boolean();
    }
    group.members.push_back(std::move(member));
  }
  return group;
}

/// Reads the line that answers a setting.
void expect_line(DeadlineSocket& socket, std::string_view begin, const std::string& origin, const char* hint) {
  const std::string line = socket.line();
  if (!line.starts_with(begin))
    throw UnreadableEvidence(
        fmt::format("{} answers \"{}\" where \"{}\" is expected{}", origin, line.substr(0, 80), begin, hint));
}

}  // namespace

Evidence read_ras(std::string_view text, const std::string& origin, ReadingLimit limit) {
  if (text.size() > kLargestRasAnswer)
    throw UnreadableEvidence(
        fmt::format("{} answers with {} bytes; up to {} are read", origin, text.size(), kLargestRasAnswer));
  json parsed = try_parse_json(text, origin, limit);
  if (parsed.is_discarded()) parsed = parse_json(with_missing_commas(text), origin, limit);
  const JsonAt answer{parsed, origin};
  Evidence evidence;
  evidence.source = EvidenceSource::ras;
  evidence.origin = origin;
  evidence.version = answer.at("nccl_version").text();
  const JsonAt communicators = answer.at("communicators");
  for (size_t i = 0; i < communicators.array().size(); ++i) evidence.groups.push_back(group_of(communicators.item(i)));
  if (answer.find("ras")) {
    const JsonAt ras = answer.at("ras");
    if (ras.find("collection_time_sec")) evidence.gathered_s = ras.at("collection_time_sec").number();
    if (ras.find("timeouts_count"))
      evidence.timeouts = static_cast<int>(std::clamp<int64_t>(ras.at("timeouts_count").integer(), 0, INT32_MAX));
  }
  return evidence;
}

namespace {
std::string address_of(const RasOptions& options) {
  if (!options.address.empty()) return options.address;
  const char* const variable = std::getenv("NCCL_RAS_ADDR");
  return variable && *variable ? variable : kDefaultAddress;
}
}  // namespace

std::string ras_answer(const RasOptions& options) {
  const std::string address = address_of(options), origin = "NCCL's RAS at " + address;
  DeadlineSocket socket(address, options.deadline, kLargestRasAnswer);
  socket.send("CLIENT PROTOCOL 2\n");
  expect_line(socket, "SERVER PROTOCOL ", origin, ": this is another service");
  socket.send(fmt::format("TIMEOUT {}\n", std::max<int64_t>(1, options.patience.count())));
  expect_line(socket, "OK", origin, "");
  socket.send("SET FORMAT json\n");
  expect_line(socket, "OK", origin, ": NCCL answers in JSON from version 2.28.7 on");
  socket.send("VERBOSE STATUS\n");
  return socket.rest();
}

Evidence ask_ras(const RasOptions& options) {
  return read_ras(ras_answer(options), "NCCL's RAS at " + address_of(options));
}

}  // namespace lockstep::inspect
