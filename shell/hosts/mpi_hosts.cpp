#include "shell/hosts/mpi_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "protocol/environment.h"
#include "protocol/files.h"
#include "protocol/launchers.h"
#include "protocol/whole_number.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

constexpr int kMostOfRange = 10'000;  // machines

/// "node1:2" names slots as well.
std::vector<Host> hosts_besides_this(const std::string& list) {
  std::set<std::string> names;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');)
    if (const std::string name = word.substr(0, word.find(':'));
        !name.empty() && name != "localhost" && name != this_host())
      names.insert(name);
  return names.empty() ? std::vector<Host>() : ssh_hosts(fmt::format("{}", fmt::join(names, ",")));
}

/// Returns "node07,node08" for "node[2:7-8]", of which the first number says how many digits there are.
std::string names_of_range(const std::string& word) {
  const size_t open = word.find('['), colon = word.find(':', open), close = word.find(']', open);
  const auto width = protocol::whole_number<int>(word.substr(open + 1, colon - open - 1));
  if (open == word.npos || colon == word.npos || close == word.npos || !width || *width < 0 || *width > 20) return word;
  std::string names;
  int64_t left = kMostOfRange;
  std::istringstream ranges(word.substr(colon + 1, close - colon - 1));
  for (std::string range; std::getline(ranges, range, ',');) {
    const size_t dash = range.find('-');
    const auto first = protocol::whole_number<int>(range.substr(0, dash));
    const auto last = dash == range.npos ? first : protocol::whole_number<int>(range.substr(dash + 1));
    const int64_t count = first && last ? int64_t{*last} - *first + 1 : 0;
    if (count < 1 || count > left) continue;
    left -= count;
    for (int64_t i = *first; i <= *last; ++i)
      names += fmt::format("{}{}{:0{}}{}", names.empty() ? "" : ",", word.substr(0, open), i, *width,
                           word.substr(close + 1));
  }
  return names;
}

/// Returns the names in what Open MPI's daemons are given: "hub,node[1:1-2]@0(3)". The first is mpirun's machine.
std::vector<std::string> names_of_daemons(const std::string& text) {
  std::vector<std::string> names;
  std::string word;
  bool is_in_range = false;
  for (const char each : text.substr(0, text.rfind('@')) + ",") {
    is_in_range = each == '[' || (is_in_range && each != ']');
    if (each != ',' || is_in_range) {
      word += each;
      continue;
    }
    std::istringstream list(names_of_range(word));
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
    word.clear();
  }
  return names;
}

/// Returns 0 where it has none that this process may see.
pid_t parent_of(pid_t process) {
  const std::string stat = protocol::read_file(fmt::format("/proc/{}/stat", process)).value_or("");
  std::istringstream rest(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));  // "(name) S 17 …"
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

/// Returns the options of the mpirun or mpiexec that is a parent of this process, up to lockstep; empty: there is none.
std::vector<std::string> command_of_mpirun() {
  for (pid_t process = ::getppid(); process > 1; process = parent_of(process)) {
    std::istringstream line(protocol::read_file(fmt::format("/proc/{}/cmdline", process)).value_or(""));
    std::vector<std::string> words;
    for (std::string word; std::getline(line, word, '\0') && std::filesystem::path(word).filename() != "lockstep";)
      words.push_back(word);
    const std::string program = words.empty() ? "" : std::filesystem::path(words.front()).filename().string();
    const auto is_named = [&](const char* each) { return program.starts_with(each); };
    if (std::ranges::any_of(std::array{"mpirun", "mpiexec", "orterun", "prterun"}, is_named)) return words;
  }
  return {};
}

}  // namespace

std::optional<MpiPlace> mpi_place() {
  for (const protocol::Launcher& each : protocol::kLaunchers) {
    if (const std::string_view name = each.name; name != "Open MPI" && name != "PMI") continue;
    const auto rank = protocol::rank_by(each, protocol::variable);
    // srun sets the number of PMI, too, and none on the machine.
    if (rank && rank->local_rank && rank->local_world_size > 0 && rank->local_world_size < rank->world_size)
      return MpiPlace{.task = rank->rank, .has_others_here = rank->local_world_size > 1};
  }
  return std::nullopt;
}

std::vector<Host> hosts_of_mpi_place() {
  if (const std::string text = protocol::variable("OMPI_MCA_orte_node_regex"); !text.empty()) {
    std::vector<std::string> names = names_of_daemons(text);
    const auto with_ranks = protocol::whole_number<int>(protocol::variable("OMPI_MCA_orte_num_nodes"));
    if (with_ranks && static_cast<int>(names.size()) > *with_ranks) names.erase(names.begin());
    return hosts_besides_this(fmt::format("{}", fmt::join(names, ",")));
  }
  const bool is_open_mpi = !protocol::variable("OMPI_COMM_WORLD_RANK").empty();
  return is_open_mpi ? mpi_hosts(command_of_mpirun()) : hydra_hosts(command_of_mpirun());
}

std::vector<Host> hydra_hosts(std::vector<std::string> launcher) {
  // "node1:2" names slots as well.
  const auto is_host = [](const std::string& word) {
    return !word.empty() && word.front() != '-' &&
           std::ranges::all_of(word, [](unsigned char c) { return std::isalnum(c) || std::strchr("-._:", c); }) &&
           find_in_path(word).empty();
  };
  for (size_t i = 1; i + 1 < launcher.size(); ++i) {
    if (launcher[i] == "-f") launcher[i] = "-hostfile";
    if (launcher[i] != "-hosts" && launcher[i] != "--hosts") continue;
    launcher[i] = "-host";
    while (i + 2 < launcher.size() && is_host(launcher[i + 2])) {
      launcher[i + 1] += "," + launcher[i + 2];
      launcher.erase(launcher.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    }
  }
  return mpi_hosts(launcher);
}

std::vector<Host> mpi_hosts(const std::vector<std::string>& launcher) {
  std::string list;
  for (size_t i = 1; i + 1 < launcher.size(); ++i) {
    const std::string& option = launcher[i];
    if (option == "-H" || option == "-host" || option == "--host") {
      list += "," + launcher[i + 1];
    } else if (option == "-hostfile" || option == "--hostfile" || option == "-machinefile" ||
               option == "--machinefile") {
      std::istringstream file(protocol::read_file(launcher[i + 1]).value_or(""));
      for (std::string line; std::getline(file, line);) list += "," + line.substr(0, line.find_first_of(" \t#"));
    }
  }
  return hosts_besides_this(list);
}

}  // namespace lockstep::shell
