// Which LibTorch the programs of a made-up installation find.
#include "protocol/installation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

namespace lockstep::protocol {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class InstallationTest : public testing::Test {
 protected:
  InstallationTest() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-installation-XXXXXX").string();
    folder_ = fs::canonical(::mkdtemp(pattern.data()));
    set("LOCKSTEP_BIN", folder_ / "prefix/bin");
    set("XDG_CACHE_HOME", folder_ / "cache");
    set("LOCKSTEP_LIBTORCH", "");
    set("LOCKSTEP_HOME", "");
    write("prefix/lib/lockstep/libtorch.version", "2.13.0\n");
    write("prefix/bin/lockstep-setup", "");
  }
  ~InstallationTest() override {
    for (const auto& [name, value] : old_) {
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
    }
    fs::remove_all(folder_);
  }

  void set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    old_.emplace(name, old ? std::optional<std::string>(old) : std::nullopt);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  /// Puts what is taken for LibTorch 2.MINOR.0 into `path`, and returns its full path.
  fs::path libtorch(const std::string& path, int minor) const {
    write(path + "/include/torch/headeronly/version.h", "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR " +
                                                            std::to_string(minor) +
                                                            "\n#define TORCH_VERSION_PATCH 0\n");
    write(path + "/lib/libtorch_cpu.so", "");
    return folder_ / path;
  }

  fs::path folder_;

 private:
  std::map<std::string, std::optional<std::string>> old_;
};

TEST_F(InstallationTest, TheFirstOfThePlacesThatHasTheVersion) {
  const fs::path cached = libtorch("cache/lockstep/libtorch/2.13.0/torch", 13);
  EXPECT_EQ(find_libtorch().folder, cached);
  const fs::path with_cuda = libtorch("cache/lockstep/libtorch/2.13.0-gpu/torch", 13);
  EXPECT_EQ(find_libtorch().folder, with_cuda);
  const fs::path built_with = libtorch("built-with", 13);
  write("prefix/lib/lockstep/libtorch.folder", built_with.string() + "\n");
  EXPECT_EQ(find_libtorch().folder, built_with);
  const fs::path named = libtorch("named", 13);
  set("LOCKSTEP_LIBTORCH", named);
  EXPECT_EQ(find_libtorch().folder, named);
  EXPECT_EQ(find_libtorch().problem, "");
}

TEST_F(InstallationTest, AnotherVersionIsPassedOver) {
  write("prefix/lib/lockstep/libtorch.folder", libtorch("built-with", 14).string() + "\n");
  libtorch("cache/lockstep/libtorch/2.13.0-gpu/torch", 12);
  const fs::path cached = libtorch("cache/lockstep/libtorch/2.13.0/torch", 13);
  EXPECT_EQ(find_libtorch().folder, cached);
}

TEST_F(InstallationTest, TheFolderOfAllUsersComesBeforeThatOfThisUser) {
  const fs::path cached = libtorch("cache/lockstep/libtorch/2.13.0/torch", 13);
  EXPECT_EQ(shared_home(), folder_ / "prefix/lib/lockstep/home");
  const fs::path shared = libtorch("prefix/lib/lockstep/home/libtorch/2.13.0/torch", 13);
  EXPECT_EQ(find_libtorch().folder, shared);
  set("LOCKSTEP_HOME", folder_ / "elsewhere");
  EXPECT_EQ(find_libtorch().folder, cached);
  const fs::path named = libtorch("elsewhere/libtorch/2.13.0-gpu/torch", 13);
  EXPECT_EQ(find_libtorch().folder, named);
}

TEST_F(InstallationTest, HeadersWithoutALibraryAreNoLibTorch) {
  const fs::path cached = libtorch("cache/lockstep/libtorch/2.13.0/torch", 13);
  fs::remove(cached / "lib/libtorch_cpu.so");
  EXPECT_EQ(find_libtorch().folder, "");
  set("LOCKSTEP_LIBTORCH", cached);
  EXPECT_THAT(find_libtorch().problem, HasSubstr("no LibTorch at " + cached.string()));
}

TEST_F(InstallationTest, NoneNamesThePlacesAndTheSetUp) {
  write("prefix/lib/lockstep/libtorch.folder", "/nowhere/torch\n");
  const LibTorch none = find_libtorch();
  EXPECT_EQ(none.folder, "");
  const std::string cache = folder_ / "cache/lockstep/libtorch/2.13.0";
  EXPECT_EQ(none.problem,
            "there is no LibTorch 2.13.0 in /nowhere/torch, " + cache + "-gpu/torch or " + cache + "/torch");
  EXPECT_THAT(none.fix, HasSubstr("run " + (folder_ / "prefix/bin/lockstep-setup").string()));
}

TEST_F(InstallationTest, WhatTheVariableNamesIsTakenOrRefused) {
  libtorch("cache/lockstep/libtorch/2.13.0/torch", 13);
  set("LOCKSTEP_LIBTORCH", libtorch("named", 11));
  EXPECT_THAT(find_libtorch().problem, HasSubstr("names LibTorch 2.11.0"));
  EXPECT_THAT(find_libtorch().problem, EndsWith("built against 2.13.0"));
  set("LOCKSTEP_LIBTORCH", "/nowhere/torch");
  EXPECT_THAT(find_libtorch().sentence(), HasSubstr("no LibTorch at /nowhere/torch: point LOCKSTEP_LIBTORCH"));
}

TEST_F(InstallationTest, ABuildFolderIsSetUpByTheScriptOfItsTree) {
  EXPECT_TRUE(is_installed());
  fs::remove(folder_ / "prefix/bin/lockstep-setup");
  EXPECT_FALSE(is_installed());
  EXPECT_EQ(setup_command(), "tools/setup");
  EXPECT_EQ(programs_prefix(), folder_ / "prefix");
}

/// A package's folder in site-packages, with what is linked with LibTorch for 2.9 and 2.13.
class WheelTest : public InstallationTest {
 protected:
  WheelTest() {
    fs::remove_all(prefix_);
    write("site/lockstep/lib/lockstep.version", "0.2.0\n");
    write("site/lockstep/include/lockstep/dist.h", "");
    for (const char* minor : {"9", "13"})
      write(std::string("site/lockstep/torch2.") + minor + "/bin/lockstep-worker", "");
    set("LOCKSTEP_BIN", folder_ / "site/lockstep/bin");
    fs::create_directories(folder_ / "site/lockstep/bin");
  }
  const fs::path prefix_ = folder_ / "prefix";
};

TEST_F(WheelTest, TakesTheTorchBesideItOfAnyOfItsMinorVersions) {
  EXPECT_TRUE(is_wheel() && is_installed() && is_run_only());
  EXPECT_EQ(libtorch("site/torch", 13), find_libtorch().folder);
  EXPECT_EQ(find_libtorch().version, "2.13.0");
  EXPECT_EQ(libtorch_version(), "2.13.0");
  EXPECT_EQ(torch_prefix(), folder_ / "site/lockstep/torch2.13");
  set("LOCKSTEP_LIBTORCH", libtorch("elsewhere/torch", 9));
  EXPECT_EQ(find_libtorch().folder, folder_ / "elsewhere/torch");
  EXPECT_EQ(torch_prefix(), folder_ / "site/lockstep/torch2.9");
}

TEST_F(WheelTest, RefusesATorchThatItHasNothingFor) {
  libtorch("site/torch", 12);
  EXPECT_THAT(find_libtorch().problem, HasSubstr("torch 2.12.0 in " + (folder_ / "site/torch").string()));
  EXPECT_EQ(find_libtorch().fix, "pip install 'torch>=2.9,<2.14'");
  EXPECT_EQ(torch_prefix(), "");
  EXPECT_EQ(libtorch_version(), "");
  set("LOCKSTEP_LIBTORCH", "/nowhere/torch");
  EXPECT_EQ(find_libtorch().sentence(),
            "there is no torch in /nowhere/torch: unset LOCKSTEP_LIBTORCH, which names it, or pip install "
            "'torch>=2.9,<2.14'");
}

TEST_F(WheelTest, HasACompilerWithThePackageOfCells) {
  EXPECT_TRUE(is_run_only());
  write("site/lockstep/bin/lockstep-compiler", "");
  EXPECT_FALSE(is_run_only());
  EXPECT_TRUE(is_wheel());
}

TEST_F(InstallationTest, AMinorVersionIsTheFirstTwoNumbers) {
  EXPECT_EQ(minor_of("2.11.0"), "2.11");
  EXPECT_EQ(minor_of("2.11"), "2.11");
}

TEST_F(InstallationTest, AFolderOfProgramsWithoutAVersionDoesNotCount) {
  fs::remove(folder_ / "prefix/lib/lockstep/libtorch.version");
  EXPECT_NE(programs_prefix(), folder_ / "prefix");
}

}  // namespace
}  // namespace lockstep::protocol
