// The precompiled header and what may be wrong with the installation. Building the header takes long, so that these
// tests work on a copy of the one that is there.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "compiler/process/shared_folder.h"
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

namespace fs = std::filesystem;

std::string failure(const std::map<std::string, std::string>& environment) {
  SessionSettings settings;
  settings.hosts = false;
  settings.environment = environment;
  CellSession session(settings);
  return session.failure();
}

TEST(Installation, NoLibTorch) {
  const std::string message = failure({{"LOCKSTEP_LIBTORCH", "/nowhere/torch"}});
  EXPECT_NE(message.find("no LibTorch at /nowhere/torch"), std::string::npos) << message;
  EXPECT_NE(message.find("LOCKSTEP_LIBTORCH"), std::string::npos);
}

TEST(Installation, AnotherLibTorchThanTheOneBuiltAgainst) {
  const fs::path folder = fs::temp_directory_path() / ("lockstep-libtorch-" + std::to_string(::getpid()));
  fs::create_directories(folder / "include/torch/headeronly");
  std::ofstream(folder / "include/torch/headeronly/version.h")
      << "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 10\n#define TORCH_VERSION_PATCH 1\n";
  const std::string message = failure({{"LOCKSTEP_LIBTORCH", folder}});
  fs::remove_all(folder);
  EXPECT_NE(message.find("names LibTorch 2.10.1"), std::string::npos) << message;
}

TEST(Installation, NoWritableCache) {
  const std::string folder = fs::temp_directory_path() / ("lockstep-cache-" + std::to_string(::getpid()));
  std::ofstream(folder) << "a file, where a folder should be";
  const std::string message = failure({{"XDG_CACHE_HOME", folder}});
  fs::remove(folder);
  EXPECT_NE(message.find("can't be created"), std::string::npos) << message;
  EXPECT_NE(message.find("XDG_CACHE_HOME"), std::string::npos);
}

TEST(Installation, AHeaderThatIsNotWhatWasBuiltIsNotUsed) {
  CellSession session;
  const fs::path original = fs::path(session.ready().prelude).parent_path();
  EXPECT_TRUE(compiler::is_complete(original));
  const fs::path copy = session.directory() + "/copy";
  fs::create_directories(copy);
  for (const char* file : {"cells.pch", "names.txt", "inventory"}) fs::create_symlink(original / file, copy / file);
  fs::copy_file(original / "libprelude.so", copy / "libprelude.so");
  EXPECT_FALSE(compiler::is_complete(copy));  // another time
  fs::last_write_time(copy / "libprelude.so", fs::last_write_time(original / "libprelude.so"));
  EXPECT_TRUE(compiler::is_complete(copy));
  fs::resize_file(copy / "libprelude.so", 100);  // cut short
  EXPECT_FALSE(compiler::is_complete(copy));
  fs::remove(copy / "inventory");
  EXPECT_FALSE(compiler::is_complete(copy));
}

TEST(Installation, CompilerReadySaysWhatItIs) {
  CellSession session;
  EXPECT_EQ(session.ready().versions.protocol, kProtocolVersion);
  EXPECT_TRUE(session.ready().versions.compiler.starts_with("clang 19"));
  EXPECT_TRUE(session.ready().versions.libtorch.starts_with("2."));
  EXPECT_TRUE(fs::exists(session.ready().prelude));
}

TEST(Installation, TheCompilerEndsWithItsSession) {
  CellSession session;
  EXPECT_EQ(session.run("int x = 1;").text(), "");
  session.compiler().close();
  EXPECT_EQ(session.compiler().wait(), 0);
}

}  // namespace
}  // namespace lockstep::compiler_test
