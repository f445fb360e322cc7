#include "shell/commands/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <regex>
#include <set>

#include "protocol/installation.h"
#include "protocol/version.h"

using namespace lockstep::shell;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

const Check& find(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const Check& check) { return check.name == name; });
  if (found == checks.end()) throw std::runtime_error("no check " + name);
  return *found;
}

/// Sets an environment variable until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_)
      ::setenv(name_, old_->c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-doctor-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::unsetenv("LOCKSTEP_LIBTORCH");  // the programs here know of none
  }
  ~DoctorTest() override { fs::remove_all(folder_); }
  /// A program that prints `text` and exits with `code`.
  void program(const std::string& name, const std::string& text, int code = 0) const {
    const fs::path path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\ncat <<'END'\n" << text << "\nEND\nexit " << code << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  fs::path folder_;
};

// What the programs of this build begin with.
const std::string kVersions = R"({"lockstep": ")" + std::string(lockstep::kVersion) + R"(", "protocol": )" +
                              std::to_string(lockstep::kProtocolVersion) + ", ";
const std::string kWorker = kVersions + R"("libtorch": "2.11.0", "libtorch_built_with": "2.11.0"})";
const std::string kCompiler =
    kVersions + R"("compiler": "clang 19.1.7", "libtorch": "2.11.0", "header": "/h", "header_state": "ready"})";

}  // namespace

TEST_F(DoctorTest, AGoodInstallation) {
  program("lockstep-worker", kWorker);
  program("lockstep-compiler", kCompiler);
  const Variable bin("LOCKSTEP_BIN", folder_);
  for (const Check& check : check_installation()) {
    EXPECT_EQ(check.state, CheckState::ok) << check.name << ": " << check.found;
    EXPECT_EQ(check.fix, "") << check.name;
  }
  EXPECT_THAT(find(check_installation(), "libtorch").found, HasSubstr("2.11.0"));
}

TEST_F(DoctorTest, WhatTheCompilerLacksIsItsOwnToSay) {
  program("lockstep-worker", kWorker);
  program("lockstep-compiler", kVersions + R"("problem": "no LibTorch at /nowhere: mend it"})");
  const Variable bin("LOCKSTEP_BIN", folder_);
  const Check check = find(check_installation(), "compiler");
  EXPECT_EQ(check.state, CheckState::missing);
  EXPECT_EQ(check.found, "no LibTorch at /nowhere: mend it");
}

TEST_F(DoctorTest, MissingProgramsNameTheMend) {
  const Variable bin("LOCKSTEP_BIN", folder_);
  const auto checks = check_installation();
  EXPECT_EQ(find(checks, "lockstep-worker").state, CheckState::missing);
  EXPECT_EQ(find(checks, "lockstep-compiler").state, CheckState::missing);
  EXPECT_THAT(find(checks, "lockstep-worker").fix, HasSubstr("tools/setup"));
}

TEST_F(DoctorTest, AWorkerWithoutItsLibraries) {
  program("lockstep-worker", "lockstep-worker: error while loading shared libraries: libtorch_cpu.so: cannot open",
          127);
  program("lockstep-compiler", kCompiler);
  const Variable bin("LOCKSTEP_BIN", folder_);
  const auto checks = check_installation();
  EXPECT_EQ(find(checks, "lockstep-worker").state, CheckState::missing);
  EXPECT_THAT(find(checks, "lockstep-worker").found, HasSubstr("libtorch_cpu.so"));
}

TEST_F(DoctorTest, LibTorchOutOfRangeOrAnotherThanBuilt) {
  program("lockstep-compiler", kCompiler);
  const Variable bin("LOCKSTEP_BIN", folder_);
  program("lockstep-worker", kVersions + R"("libtorch": "2.16.1", "libtorch_built_with": "2.16.1"})");
  EXPECT_THAT(find(check_installation(), "libtorch").fix, HasSubstr("LOCKSTEP_LIBTORCH"));
  program("lockstep-worker", kVersions + R"("libtorch": "2.12.0", "libtorch_built_with": "2.11.0"})");
  EXPECT_EQ(find(check_installation(), "libtorch").state, CheckState::missing);
  EXPECT_THAT(find(check_installation(), "libtorch").found, HasSubstr("made with 2.11.0"));
}

TEST_F(DoctorTest, NoLibTorchIsOneFaultAndNamesTheSetUpOfTheInstallation) {
  fs::create_directories(folder_ / "bin");
  fs::create_directories(folder_ / "lib/lockstep");
  std::ofstream(folder_ / "lib/lockstep/libtorch.version") << "2.11.0\n";
  program("bin/lockstep-setup", "");
  program("bin/lockstep-worker", "error while loading shared libraries", 127);
  const Variable bin("LOCKSTEP_BIN", folder_ / "bin"), cache("XDG_CACHE_HOME", folder_ / "cache");
  const lockstep::protocol::LibTorch libtorch = lockstep::protocol::find_libtorch();
  program("bin/lockstep-compiler",
          kVersions + R"("compiler": "clang 19.1.7", "problem": ")" + libtorch.sentence() + "\"}");
  const auto checks = check_installation();
  const Check& check = find(checks, "libtorch");
  EXPECT_EQ(check.state, CheckState::missing);
  EXPECT_THAT(check.found, HasSubstr((folder_ / "cache/lockstep/libtorch/2.11.0/torch").string()));
  EXPECT_THAT(check.fix, HasSubstr((folder_ / "bin/lockstep-setup").string()));
  for (const Check& other : checks)
    if (other.name != "libtorch") EXPECT_EQ(other.state, CheckState::ok) << other.name << ": " << other.found;
}

TEST_F(DoctorTest, AnInstallationWithoutItsLibrariesNamesItsSetUp) {
  fs::create_directories(folder_ / "bin");
  fs::create_directories(folder_ / "lib/lockstep");
  std::ofstream(folder_ / "lib/lockstep/libtorch.version") << "2.11.0\n";
  program("bin/lockstep-setup", "");
  program("bin/lockstep-compiler", "error while loading shared libraries: libclang-cpp.so.19.1", 127);
  const Variable bin("LOCKSTEP_BIN", folder_ / "bin");
  const Check check = find(check_installation(), "lockstep-compiler");
  EXPECT_THAT(check.found, HasSubstr("libclang-cpp.so.19.1"));
  EXPECT_THAT(check.fix, HasSubstr((folder_ / "bin/lockstep-setup").string()));
}

TEST_F(DoctorTest, AWheelSaysWhatItCanNotDoAndTheWayToIt) {
  fs::create_directories(folder_ / "bin");
  fs::create_directories(folder_ / "lib/lockstep");
  std::ofstream(folder_ / "lib/lockstep.version") << "0.2.0\n";
  const Variable bin("LOCKSTEP_BIN", folder_ / "bin");
  const Check check = find(check_installation(), "compiler");
  EXPECT_EQ(check.state, CheckState::note);
  EXPECT_THAT(check.found, HasSubstr("can't compile C++ cells"));
  EXPECT_THAT(check.fix, HasSubstr("pip install 'lockstep[cells]'"));
  EXPECT_THAT(check.fix, HasSubstr("g++ 10 or newer"));
}

TEST_F(DoctorTest, ProgramsOfDifferentBuilds) {
  program("lockstep-worker", R"({"lockstep": "0.0.9", "protocol": 7, "libtorch": "2.11.0"})");
  program("lockstep-compiler", kCompiler);
  const Variable bin("LOCKSTEP_BIN", folder_);
  const auto checks = check_installation();
  EXPECT_EQ(find(checks, "versions").state, CheckState::missing);
  EXPECT_THAT(find(checks, "versions").found, HasSubstr("lockstep-worker is 0.0.9, protocol 7"));
}

TEST_F(DoctorTest, HeadersThatWillBeBuiltAreNotes) {
  program("lockstep-worker", kWorker);
  const Variable bin("LOCKSTEP_BIN", folder_);
  for (const char* state : {"missing", "damaged"}) {
    program("lockstep-compiler", kVersions + R"("header": "/h", "header_state": ")" + std::string(state) + "\"}");
    EXPECT_EQ(find(check_installation(), "precompiled header").state, CheckState::note) << state;
  }
}

TEST_F(DoctorTest, FoldersThatCantBeWritten) {
  std::ofstream(folder_ / "file") << "in the way";
  const Variable cache("XDG_CACHE_HOME", folder_ / "file");
  const Check check = find(check_machine(), "cache");
  EXPECT_EQ(check.state, CheckState::missing);
  EXPECT_THAT(check.fix, HasSubstr("XDG_CACHE_HOME"));
}

TEST(Doctor, VariablesOfTheDocumentationMeanSomething) {
  const std::regex variable("LOCKSTEP_[A-Z_]*[A-Z]");
  std::set<std::string> names;
  for (const char* page : {"commands", "events", "python", "python-prompt", "waits"}) {
    std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/" + std::string(page) + ".md");
    for (std::string line; std::getline(file, line);) {
      for (std::sregex_iterator each(line.begin(), line.end(), variable), end; each != end; ++each)
        names.insert(each->str());
    }
  }
  EXPECT_TRUE(names.contains("LOCKSTEP_FINDINGS") && names.contains("LOCKSTEP_BREAKPOINT_TIMEOUT"));
  std::list<Variable> set;
  for (const std::string& name : names) set.emplace_back(name.c_str(), "/nowhere");
  const Check check = find(check_machine(), "environment");
  EXPECT_EQ(check.state, CheckState::ok) << check.fix;
}

TEST_F(DoctorTest, VariablesThatMeanNothingAreNamed) {
  const Variable slip("LOCKSTEP_LIBTROCH", "/x");
  const Check check = find(check_machine(), "environment");
  EXPECT_EQ(check.state, CheckState::note);
  EXPECT_THAT(check.fix, HasSubstr("did you mean LOCKSTEP_LIBTORCH?"));
}

TEST_F(DoctorTest, ThisMachine) {
  const auto checks = check_machine();
  EXPECT_EQ(find(checks, "loopback").state, CheckState::ok) << find(checks, "loopback").found;
  EXPECT_GT(find(checks, "cells").data.at("cells").get<int>(), 0);
  EXPECT_GT(find(checks, "memory").data.at("available_bytes").get<int64_t>(), 0);
}

TEST_F(DoctorTest, AProgramThatDoesNotEndIsGivenUp) {
  std::ofstream(folder_ / "endless") << "#!/bin/sh\necho begun\nexec sleep 1000\n";
  fs::permissions(folder_ / "endless", fs::perms::owner_all);
  const ProgramOutput output = output_of({.program = folder_ / "endless"}, 0.5);
  EXPECT_EQ(output.exit_code, -1);
  EXPECT_EQ(output.text, "begun\n");
}

// ---- GPUs -----------------------------------------------------------------------------------------------------------

TEST_F(DoctorTest, TheGpusAsTheDriverReportsThem) {
  const auto line = [](int index, const std::string& more) {
    return R"({"index": )" + std::to_string(index) + R"(, "problem": null, "name": "NVIDIA H100", "uuid": "GPU-1",)" +
           R"( "bus_id": "0000:3b:00.0", "capability": "9.0", "total_bytes": 80000000000, "used_bytes": 1,)" +
           R"( "processes": [], "peers": [1])" + more + "}\n";
  };
  program("lockstep", R"({"driver": "570.10", "cuda": 12080, "count": 3})"
                      "\n" +
                          line(0, R"(, "ecc": true, "persistence": true)") +
                          line(1, R"(, "ecc": true, "uncorrected_errors": 4, "persistence": false)"));
  const Variable bin("LOCKSTEP_BIN", folder_);
  const auto checks = check_gpus();
  const Check& check = find(checks, "gpus");
  EXPECT_EQ(check.state, CheckState::note);
  EXPECT_THAT(check.found, HasSubstr("driver 570.10, CUDA up to 12.8"));
  EXPECT_THAT(check.found,
              HasSubstr("GPU 0: NVIDIA H100, compute capability 9.0, 80.0 GB, ECC on, persistence mode on, "
                        "reads the memory of GPU 1"));
  EXPECT_THAT(check.found, HasSubstr("4 uncorrected memory errors"));
  EXPECT_THAT(check.found, HasSubstr("GPU 2: NVML does not answer"));
  EXPECT_THAT(check.fix, HasSubstr("GPU 2 can't be used"));
  EXPECT_THAT(check.fix, HasSubstr("nvidia-smi -pm 1"));
  EXPECT_THAT(check.fix, HasSubstr("the memory of GPU 1 has failed"));
  EXPECT_EQ(check.data.at("gpus").size(), 3U);
  EXPECT_EQ(check.data.at("driver"), "570.10");
  const Check& plugin = find(checks, "gpu plug-in");
  EXPECT_EQ(plugin.state, CheckState::note) << "GPUs without the plug-in";
  EXPECT_EQ(plugin.found, "not built");
  EXPECT_THAT(plugin.fix, HasSubstr("tools/setup --gpu"));
}

TEST_F(DoctorTest, WithoutAGpuNothingIsMissing) {
  program("lockstep", R"({"problem": "libnvidia-ml.so.1: cannot open shared object file"})");
  const Variable bin("LOCKSTEP_BIN", folder_);
  for (const Check& check : check_gpus()) {
    EXPECT_EQ(check.state, CheckState::ok) << check.name << ": " << check.found;
    EXPECT_EQ(check.fix, "") << check.name;
  }
  EXPECT_THAT(find(check_gpus(), "gpus").found, HasSubstr("none visible"));
}

TEST_F(DoctorTest, WhichGpusThePlugInHasCodeForIsReadFromItsFile) {
  std::ofstream(folder_ / "liblockstep_cuda.so", std::ios::binary)
      << "\x7f" << "ELF" << std::string(3, '\0') << "lockstep-cuda-architectures:80,86,90,120,120+;" << '\0' << "rest";
  const auto architectures = plugin_architectures(folder_ / "liblockstep_cuda.so");
  EXPECT_EQ(architectures, (std::vector<std::string>{"8.0", "8.6", "9.0", "12.0+"}));
  EXPECT_TRUE(has_code_for(architectures, "8.0"));
  EXPECT_TRUE(has_code_for(architectures, "8.9")) << "code for 8.6 runs on 8.9";
  EXPECT_FALSE(has_code_for(architectures, "7.5"));
  EXPECT_FALSE(has_code_for(architectures, "10.0")) << "neither code for it, nor PTX that is old enough";
  EXPECT_TRUE(has_code_for(architectures, "12.1"));
  EXPECT_TRUE(has_code_for(architectures, "13.0")) << "by PTX";
  program("lockstep",
          R"({"driver": "580", "cuda": 13000, "count": 1})"
          "\n"
          R"({"index": 0, "problem": null, "name": "B200", "uuid": "", "bus_id": "", "capability": "10.0", )"
          R"("processes": [], "peers": []})");
  const Variable bin("LOCKSTEP_BIN", folder_);
  const Check check = find(check_gpus(), "gpu plug-in");
  EXPECT_EQ(check.state, CheckState::note);
  EXPECT_THAT(check.found, HasSubstr("none for GPU 0 (10.0)"));
  EXPECT_THAT(check.fix, HasSubstr("LOCKSTEP_CUDA_ARCHITECTURES=\"100\""));
  EXPECT_EQ(plugin_architectures(folder_ / "nothing"), std::vector<std::string>());
}
