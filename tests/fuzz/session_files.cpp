// Files of a user's sessions: journals, the history of what was typed, connection files of Jupyter, files of
// `lockstep build`, tickets, what a session says of itself.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "protocol/checksum.h"
#include "protocol/error.h"
#include "protocol/read_json.h"
#include "shell/built/built_file.h"
#include "shell/events/event_reader.h"
#include "shell/journal/journal_content.h"
#include "shell/journal/journal_folder.h"
#include "shell/journal/journal_reader.h"
#include "shell/journal/record.h"
#include "shell/jupyter/connection_file.h"
#include "shell/link/link_ticket.h"
#include "shell/processes/session_records.h"
#include "shell/terminal/history_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

/// Reads a journal as `lockstep sessions show` and `lockstep run --journal` do.
void read(const std::string& cells, const std::string& output) {
  const std::string path = folder() + "/7-0f";
  written("7-0f/cells.jsonl", cells);
  written("7-0f/output-2.jsonl", output);
  written("7-0f/cells-2.jsonl", output);
  shell::read_journal(path);
  shell::JournalReader reader(path);
  while (const auto record = reader.next()) shell::read_event(*record);
}

/// The lines up to a form feed are cells, the rest output: as they are, and each with the checksum that fits it, which no
/// mutation finds by itself.
void journal(std::string_view bytes) {
  const size_t feed = std::min(bytes.find('\f'), bytes.size());
  const std::string_view parts[] = {bytes.substr(0, feed), bytes.substr(std::min(feed + 1, bytes.size()))};
  read(std::string(parts[0]), std::string(parts[1]));
  std::string with_checksums[2];
  for (size_t i = 0; i < 2; ++i)
    for (std::string_view rest = parts[i]; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      auto record = protocol::read_json(rest.substr(0, end));
      if (record.is_object()) {
        record.erase("check");
        with_checksums[i] += shell::record_line(record);
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  read(with_checksums[0], with_checksums[1]);
}

void journal_limits(std::string_view bytes) {
  try {
    shell::parse_journal_limits(bytes);
  } catch (const UsageError&) {
  }
}

void history(std::string_view bytes) { shell::HistoryFile(written("history", bytes)).load(10); }

void connection_file(std::string_view bytes) {
  try {
    const auto connection = shell::jupyter::read_connection_file(written("kernel.json", bytes));
    check(!connection.key.empty(), "a connection has a key");
    connection.endpoint(connection.shell_port);
  } catch (const UsageError&) {
  }
}

void parse_built(const std::string& bytes) {
  try {
    const shell::BuiltFile file = shell::parse_built_file(bytes, "file");
    shell::check_versions(file, "file");
  } catch (const UsageError&) {
  }
}

/// As it is, and with the checksum that fits it.
void built_file(std::string_view bytes) {
  constexpr size_t kSum = 40, kRest = 48;
  std::string file(bytes);
  parse_built(file);
  if (file.size() < kRest) return;
  const uint64_t sum = protocol::checksum(std::string_view(file).substr(kRest));
  for (size_t i = 0; i < sizeof sum; ++i) file[kSum + i] = static_cast<char>(sum >> (8 * i) & 0xff);
  parse_built(file);
}

/// The key of a ticket is text of the input, so a ticket that is read has one.
void ticket(std::string_view bytes) {
  const std::string path = written("ticket", bytes);
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  try {
    const shell::LinkTicket read = shell::read_ticket(path);
    check(read.port > 0 && read.port < 65536 && !read.addresses.empty(), "a ticket says where to go");
  } catch (const UsageError&) {
  }
}

/// What a session has left in the runtime folder, as `lockstep sessions` lists it.
void session_record(std::string_view bytes) {
  written("sessions/1-0f/session.json", bytes);
  const auto sessions = shell::read_sessions({folder() + "/sessions"});
  check(sessions.size() == 1, "a session is listed, whatever its file says");
}

const AddTarget kJournal("journal", journal), kJournalLimits("journal_limits", journal_limits),
    kHistory("history", history), kConnectionFile("connection_file", connection_file),
    kBuiltFile("built_file", built_file), kTicket("ticket", ticket), kSessionRecord("session_record", session_record);

}  // namespace
}  // namespace lockstep::fuzz
