#include "inspectors/remains/job_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "inspectors/evidence/file_bytes.h"
#include "inspectors/evidence/read.h"
#include "inspectors/remains/error_file.h"
#include "inspectors/remains/stack_text.h"
#include "protocol/whole_number.h"

namespace lockstep::inspect {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 100'000;
constexpr size_t kHead = 4096;
constexpr size_t kLargestErrorFile = 16 << 20;
constexpr size_t kLogTail = 32 << 20;  // of a longer log, its end
constexpr size_t kKeptCalls = 64;  // of each group, beside those that have not ended

struct File {
  std::string path;
  bool given = false;  // by itself, not within a folder
};

std::vector<File> files_of(const std::vector<std::string>& paths, Remains& remains) {
  std::vector<File> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw UnreadableEvidence(path + ": there is no such file or folder");
    if (!fs::is_directory(status)) {
      // A pipe or a device could keep its reader waiting.
      if (!fs::is_regular_file(status)) throw UnreadableEvidence(path + " is neither a file nor a folder");
      files.push_back({path, true});
      continue;
    }
    const size_t before = files.size();
    for (fs::recursive_directory_iterator entry(path, fs::directory_options::skip_permission_denied, error), end;
         !error && entry != end && files.size() < kMostFiles; entry.increment(error))
      if (std::error_code ignored; entry->is_regular_file(ignored)) files.push_back({entry->path().string(), false});
    if (files.size() >= kMostFiles)
      remains.unread.push_back(fmt::format("{} has more than {} files; the others were not read", path, kMostFiles));
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
  }
  return files;
}

std::string log_tail(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw UnreadableEvidence(path + " can't be opened");
  const auto size = static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0));
  const size_t kept = std::min(size, kLogTail);
  std::string bytes(kept, '\0');
  file.seekg(static_cast<std::streamoff>(size - kept));
  file.read(bytes.data(), static_cast<std::streamsize>(kept));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

/// Keeps what says something about the end of the job, so that the dumps of a thousand ranks fit into memory.
void trim(Evidence& dump) {
  std::map<std::string, size_t> left;
  std::vector<EvidenceCall> kept;
  for (auto call = dump.calls.rbegin(); call != dump.calls.rend(); ++call)
    if (call->state != EvidenceState::completed || left[call->group]++ < kKeptCalls) kept.push_back(std::move(*call));
  std::ranges::reverse(kept);
  kept.shrink_to_fit();
  dump.calls = std::move(kept);
}

/// Reads a dump or an error file.
void read_structured(const File& file, std::string_view start, std::optional<int> rank, ReadingLimit limit,
                     Remains& into) {
  if (is_error_file(start)) {
    const std::string bytes = file_bytes(file.path, kLargestErrorFile, limit);
    into.errors.push_back(read_error_file(bytes, file.path, rank, limit));
  } else {
    Evidence dump = read_evidence_file(file.path, limit);
    if (!dump.rank) dump.rank = rank;
    trim(dump);
    into.evidence.push_back(std::move(dump));
  }
  ++into.files;
}

/// Whether a file that can't be read may be one that the verdict needs.
bool is_like_evidence(const std::string& head) {
  return std::ranges::any_of(
      std::array{"entries", "pg_config", "nccl_version", "time_ns", "py_callstack", "errorTraceback"},
      [&](const char* each) { return head.find(each) != std::string::npos; });
}

/// Where torchrun writes what a rank prints, and its exception: each machine has folders of its own.
struct OfTorchrun {
  std::string run, attempt;  // folders
  int local_rank = 0;  // among the ranks of that machine
};

std::optional<OfTorchrun> place_of_torchrun(const fs::path& file) {
  const fs::path folder = file.parent_path(), attempt = folder.parent_path();
  const std::string stem = file.stem().string();
  const auto local_rank = protocol::whole_number<int>(folder.filename().string(), 0);
  if (!local_rank || !attempt.filename().string().starts_with("attempt_") ||
      (stem != "stdout" && stem != "stderr" && stem != "error"))
    return std::nullopt;
  return OfTorchrun{.run = attempt.parent_path().string(), .attempt = attempt.string(), .local_rank = *local_rank};
}

struct Part {
  Remains remains;
  std::optional<int> rank;  // that torch names in the file: among all ranks
};

/// Adds what one file holds to `part`. Throws EvidenceTooLarge where `limit` does not suffice; if it is the `last`
/// reading of the file, only where it may be evidence.
void read_file(const File& file, const ReadingLimit& limit, bool last, Part& part) {
  Remains& into = part.remains;
  std::string head;
  {
    std::ifstream stream(file.path, std::ios::binary);
    if (!stream) throw UnreadableEvidence(file.path + " can't be opened");
    head.resize(kHead);
    stream.read(head.data(), kHead);
    head.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  }
  const size_t begin = head.find_first_not_of(" \t\r\n");
  const std::string_view start = std::string_view(head).substr(std::min(begin, head.size()));
  const std::optional<int> rank = rank_in_path(file.path);
  if (start.empty()) {
    if (file.given) into.unread.push_back(file.path + " is empty");
    return;
  }
  const bool is_text = head.find('\0') == std::string::npos;
  if (is_error_file(start) || start.front() == '{' || start.front() == '\x80') {
    try {
      read_structured(file, start, rank, limit, into);
      return;
    } catch (const EvidenceTooLarge&) {
      if (!last || file.given || is_like_evidence(head)) throw;
      return;
    } catch (const UnreadableEvidence&) {
      // A log may begin with a dictionary, and a folder have other JSON.
      if (start.front() == '{' && is_text && read_stack_text(log_tail(file.path), file.path, rank, into)) {
        ++into.files;
        return;
      }
      if (file.given || is_like_evidence(head)) throw;
      return;
    }
  }
  if (is_text) {
    const std::string text = log_tail(file.path);
    part.rank = rank_of_torch_in(text);
    if (read_stack_text(text, file.path, rank, into))
      ++into.files;
    else if (file.given)
      into.unread.push_back(file.path + " has no traceback and no stack of faulthandler or py-spy");
  } else if (file.given) {
    into.unread.push_back(file.path + " is no dump, error file or log");
  }
}

void add(Remains& all, Remains part) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(all.evidence, part.evidence);
  append(all.errors, part.errors);
  append(all.stacks, part.stacks);
  append(all.unread, part.unread);
  all.files += part.files;
}

/// Gives ranks of folders of torchrun, whose numbers are those of one machine, their numbers among all ranks: torch names
/// some in lines that it prints. Where it names none, and several machines have left something, theirs are not known.
void number_ranks(const std::vector<File>& files, std::vector<Part>& parts) {
  std::map<std::string, std::set<int>> firsts;  // by the folder of an attempt: what its files say of its first rank
  std::set<std::string> runs, told;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto place = place_of_torchrun(files[i].path);
    if (place && parts[i].rank) firsts[place->attempt].insert(*parts[i].rank - place->local_rank);
    if (place && parts[i].remains.files > 0) runs.insert(place->run);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const auto place = place_of_torchrun(files[i].path);
    if (!place || parts[i].remains.files == 0) continue;
    const std::set<int>& first = firsts[place->attempt];
    const bool is_known = first.size() == 1 && *first.begin() >= 0;
    if (!is_known && runs.size() < 2) continue;
    const int number = is_known ? *first.begin() + place->local_rank : -1;
    for (RankError& each : parts[i].remains.errors)
      if (each.rank == place->local_rank) each.rank = number;
    for (RankStack& each : parts[i].remains.stacks)
      if (each.rank == place->local_rank) each.rank = number;
    if (!is_known && told.insert(place->attempt).second)
      parts[i].remains.unread.push_back(fmt::format(
          "{} has folders by the number of a rank on its machine, and torch names no rank of the job in them "
          "(\"[rank3]:\"): what is in them is of ranks that are not known",
          place->attempt));
  }
}

/// Dumps are of one rank and source; "nccl" and "gloo" are two.
std::string backend_of(const Evidence& dump) { return dump.calls.empty() ? "" : dump.calls.front().backend; }

void keep_newest_dumps(Remains& remains) {
  std::map<std::pair<int, std::string>, std::pair<fs::file_time_type, size_t>> newest;
  std::vector<bool> dropped(remains.evidence.size());
  for (size_t i = 0; i < remains.evidence.size(); ++i) {
    const Evidence& dump = remains.evidence[i];
    if (dump.source != EvidenceSource::flight_recorder || !dump.rank) continue;
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(dump.origin, error);
    const auto [known, fresh] = newest.try_emplace({*dump.rank, backend_of(dump)}, std::pair(time, i));
    if (fresh) continue;
    const bool is_newer = time > known->second.first;
    const size_t older = is_newer ? known->second.second : i;
    dropped[older] = true;
    remains.unread.push_back(fmt::format("{} is an older dump of rank {}", remains.evidence[older].origin, *dump.rank));
    if (is_newer) known->second = {time, i};
  }
  std::vector<Evidence> kept;
  for (size_t i = 0; i < dropped.size(); ++i)
    if (!dropped[i]) kept.push_back(std::move(remains.evidence[i]));
  remains.evidence = std::move(kept);
}

}  // namespace

std::optional<int> rank_in_path(const std::string& path) {
  constexpr size_t kMostDigits = 6;
  const auto digits_at = [](const std::string& text, size_t begin) -> std::optional<int> {
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    if (end == begin || end - begin > kMostDigits) return std::nullopt;
    return std::stoi(text.substr(begin, end - begin));
  };
  const fs::path whole(path);
  const bool is_log = whole.extension() == ".log" || whole.extension() == ".txt" || whole.stem() == "error";
  fs::path part = whole;
  for (bool is_name = true; part.has_filename(); part = part.parent_path(), is_name = false) {
    const std::string name = part.filename().string();
    constexpr auto kNone = std::string::npos;
    for (size_t at = name.rfind("rank"); at != kNone; at = at == 0 ? kNone : name.rfind("rank", at - 1)) {
      size_t begin = at + 4;
      if (begin < name.size() && (name[begin] == '_' || name[begin] == '-')) ++begin;
      if (const auto rank = digits_at(name, begin)) return rank;
    }
    if (is_name && !is_log)
      if (const auto rank = rank_in_file_name(name)) return rank;
    const std::string stem = whole.stem().string();
    const bool of_torchrun =
        part == whole.parent_path() && (part.parent_path().filename().string().starts_with("attempt_") ||
                                        stem == "stdout" || stem == "stderr" || stem == "error");
    if (of_torchrun && name.find_first_not_of("0123456789") == std::string::npos) return digits_at(name, 0);
  }
  return std::nullopt;
}

Remains read_remains(const std::vector<std::string>& paths, const ReadingLimit& limit) {
  Remains remains;
  const std::vector<File> files = files_of(paths, remains);
  std::vector<Part> parts(files.size());
  const size_t wanted = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), files.size());
  const ReadingLimit share(limit.left() / std::max<size_t>(1, wanted));
  std::vector<char> put_off(files.size());
  const auto read = [&](size_t i, const ReadingLimit& own, bool last) {
    try {
      read_file(files[i], own, last, parts[i]);
    } catch (const std::exception& error) {  // the other files may say enough
      put_off[i] = dynamic_cast<const EvidenceTooLarge*>(&error) != nullptr;
      parts[i] = {};
      parts[i].remains.unread.emplace_back(error.what());
    }
  };
  std::atomic<size_t> next = 0;
  const auto read_some = [&] {
    for (size_t i = next++; i < files.size(); i = next++) read(i, share, wanted == 1);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < wanted; ++i) threads.emplace_back(read_some);
  read_some();
  for (std::thread& each : threads) each.join();
  // What is too large for a share of the memory is read alone.
  for (size_t i = 0; i < files.size() && wanted > 1; ++i) {
    if (!put_off[i]) continue;
    parts[i] = {};
    read(i, limit, true);
  }
  number_ranks(files, parts);
  for (Part& part : parts) add(remains, std::move(part.remains));
  keep_newest_dumps(remains);
  return remains;
}

}  // namespace lockstep::inspect
