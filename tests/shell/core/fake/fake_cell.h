// The language of the fakes: what the fake compiler "compiles" and the fake worker "runs", one command a line, so that
// tests of the shell need neither Clang nor LibTorch. `rank 1 COMMAND` is for rank 1 alone.
//
//   print TEXT, print_err TEXT     TEXT and a newline        raw HEX        bytes
//   storm N                        N bytes of output in lines of 64
//   value TEXT                     a shown value
//   lines N                        a shown value of N lines
//   number X                       a shown number, which is to be shown as a range
//   turns N TOTAL LABEL            N turns of a loop over progress() are over, which goes on
//   turned N TOTAL LABEL           a loop is over after N turns
//   throw TEXT, consequence TEXT   an error; one that follows from another rank's
//   out_of_memory TEXT             an error of an allocation
//   loop                           runs until it is interrupted or aborted
//   stubborn, stubborn_again       runs until it is killed; the second one in a rank that was started again
//   collective                     enters the next collective and leaves it
//   join                           enters the next collective and waits in it until it is aborted
//   new_group                      waits in dist::new_group until it is interrupted
//   slow_regroup                   the next regroup waits until it is aborted
//   fault TEXT                     a finding
//   answer TEXT                    TEXT is the answer to all questions from now on
//   send TEXT                      TEXT to the hub, message or not
//   exit N, kill N                 ends the process, by a signal
//   child                          leaves a process behind, in the worker's group
//   heir                           leaves one behind outside of it that holds the connection to the hub open until the
//                                  session's end
//   refuse TEXT                    the object can't be loaded
//   loading TEXT                   TEXT and a newline when it is loaded
//   die_loading, die_regrouping    the process ends when it is to load the cell, or at the next regroup
//   error TEXT, crash, slow        of the compiler: a diagnostic, its death, a compile that lasts until it is cancelled
//   late, crash_child              of the compiler: as when it ends a compile itself, or the process that compiled has
//                                  died
//   stop                           of the compiler: it is stopped
//   end PID, halt PID              of the compiler: it kills or stops another process
#pragma once
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::fake {

struct Command {
  int line = 0;
  std::string name, text;
};

/// Commands of `source` that `rank` runs; all of them for rank -1.
inline std::vector<Command> commands_of(const std::string& source, int rank) {
  std::vector<Command> result;
  std::istringstream lines(source);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    Command command{.line = number, .name = {}, .text = {}};
    words >> command.name;
    if (command.name == "__lockstep::show_in_full();") words >> command.name;
    if (command.name == "rank") {
      int only = -1;
      words >> only >> command.name;
      if (rank >= 0 && only != rank) continue;
    }
    if (command.name.empty() || command.name.starts_with("//")) continue;
    std::getline(words >> std::ws, command.text);
    result.push_back(command);
  }
  return result;
}

}  // namespace lockstep::fake
