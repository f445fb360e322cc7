// `lockstep run --tail N -- torchrun …` shows the last lines that each rank of a Python job has written.
//
// torchrun writes the output of each rank into a file, beside its own, if it is asked to. It is asked by its variables
// (PET_TEE, PET_LOG_DIR), which its options on the command line override. The ranks are started as without --tail, but
// write into pipes of torchrun, and it writes the rank before each line ("[default0]:").
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::shell {

class JobOutputTail {
 public:
  /// `lines` are of each rank and stream. `launcher` has its arguments, of which --log-dir counts. Makes a folder for
  /// the files unless the launcher has one. Throws StartError.
  JobOutputTail(int lines, const std::vector<std::string>& launcher);
  /// Removes the folder that it has made.
  ~JobOutputTail();
  JobOutputTail(const JobOutputTail&) = delete;
  JobOutputTail& operator=(const JobOutputTail&) = delete;

  void add_to(std::map<std::string, std::string>& environment) const;

  /// Returns what the ranks wrote last, equal text once: "rank 1, standard error:\n  …". `ranks` maps local rank to
  /// rank. Without files, returns a line that says so.
  std::string text(const std::map<int, int>& ranks) const;

 private:
  const size_t lines_;
  std::string folder_;
  std::map<std::string, std::filesystem::file_time_type> earlier_;  // files of earlier jobs in the launcher's folder
  bool is_own_ = false;
};

}  // namespace lockstep::shell
