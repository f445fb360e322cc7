// Takes the Python stacks of another process by py-spy, which is not a part of Lockstep: `py-spy dump --pid P --json`.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/evidence/evidence.h"

namespace lockstep::shell {

struct PythonThread {
  int64_t id = 0;  // the kernel's; that of the main thread is the process id
  std::string name;
  bool holds_lock = false;  // the interpreter's
  std::vector<inspect::EvidenceFrame> frames;  // innermost first
};

struct PythonStacks {
  std::vector<PythonThread> threads;
  std::string problem;  // why there are none
};

/// Returns the path of the program: `named` (--py-spy); else beside the interpreters of the ranks, whose folders these
/// are; else in PATH. Empty where there is none. Throws UsageError where `named` can't be run.
std::string find_py_spy(const std::string& named, const std::vector<std::string>& folders);

/// Returns "0.4.3"; empty where it does not answer in time.
std::string py_spy_version(const std::string& program, std::chrono::milliseconds limit);

/// `stops`: the process is stopped meanwhile, as is needed for one whose main thread runs. Blocks until py-spy has ended,
/// at most for `limit`, unless the kernel keeps it (copies.h).
PythonStacks python_stacks(const std::string& program, int64_t pid, bool stops, std::chrono::milliseconds limit);

/// Reads what it prints. Throws nlohmann::json's exceptions.
std::vector<PythonThread> read_py_spy(const std::string& text);

}  // namespace lockstep::shell
