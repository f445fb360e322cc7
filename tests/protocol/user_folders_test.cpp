#include "protocol/user_folders.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>

namespace lockstep::protocol {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kSomebody = 54321;

/// Sets a variable, or takes it away, for the time of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(UserFolder, IsTheVariablesOrBelowHome) {
  const Variable home("HOME", "/home/me");
  {
    const Variable named("XDG_CACHE_HOME", "/elsewhere");
    EXPECT_EQ(user_folder("XDG_CACHE_HOME", ".cache"), "/elsewhere");
  }
  for (const char* none : {(const char*)nullptr, "", "relative/path"}) {
    const Variable named("XDG_CACHE_HOME", none);
    EXPECT_EQ(user_folder("XDG_CACHE_HOME", ".cache"), "/home/me/.cache");
  }
}

TEST(UserFolder, WithoutHomeIsThatOfTheUserDatabaseAndNeverShared) {
  const Variable home("HOME", nullptr), named("XDG_CACHE_HOME", nullptr);
  const std::string folder = user_folder("XDG_CACHE_HOME", ".cache");
  EXPECT_FALSE(folder.starts_with("/tmp")) << folder;
  if (const passwd* user = ::getpwuid(::geteuid()); user && fs::is_directory(user->pw_dir))
    EXPECT_EQ(folder, std::string(user->pw_dir) + "/.cache");
}

class WritableByOthers : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "lockstep-trust-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    top_ = name;
    fs::create_directories(top_ / "a/b");
    std::ofstream(top_ / "a/b/file") << "x";
    for (const char* path : {"a", "a/b", "a/b/file"}) ::chmod((top_ / path).c_str(), 0755);
  }
  void TearDown() override { fs::remove_all(top_); }
  std::string problem(const fs::path& path = "a/b/file") const { return writable_by_others(top_ / path); }

  fs::path top_;
};

TEST_F(WritableByOthers, OwnFilesAreNot) {
  EXPECT_EQ(problem(), "");
  EXPECT_EQ(problem("a/b/missing/below"), "") << "what is not there is left out";
  EXPECT_EQ(problem("a/../a/./b/file"), "");
}

TEST_F(WritableByOthers, ModesOfTheFileAndOfEachFolderAboveCount) {
  for (const char* path : {"a", "a/b", "a/b/file"}) {
    ::chmod((top_ / path).c_str(), 0757);
    EXPECT_NE(problem().find((top_ / path).string() + " can be written by all users"), std::string::npos) << problem();
    ::chmod((top_ / path).c_str(), 0755);
  }
  ::chmod((top_ / "a").c_str(), 01777);
  EXPECT_EQ(problem(), "") << "sticky, as /tmp is";
}

TEST_F(WritableByOthers, AForeignGroupCounts) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chown((top_ / "a/b").c_str(), 0, kSomebody), 0);
  EXPECT_EQ(problem(), "") << "it may only read";
  ::chmod((top_ / "a/b").c_str(), 0775);
  EXPECT_NE(problem().find("can be written by the group"), std::string::npos) << problem();
}

TEST_F(WritableByOthers, OwnersOfTheFileAndOfEachFolderAboveCount) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  for (const char* path : {"a", "a/b", "a/b/file"}) {
    ASSERT_EQ(::chown((top_ / path).c_str(), kSomebody, 0), 0);
    EXPECT_NE(problem().find((top_ / path).string() + " belongs to user 54321"), std::string::npos) << problem();
    ASSERT_EQ(::chown((top_ / path).c_str(), 0, 0), 0);
  }
}

TEST_F(WritableByOthers, LinksAreFollowedAndTheirOwnersCount) {
  fs::create_symlink(top_ / "a/b", top_ / "link");
  fs::create_symlink("link/file", top_ / "second");
  EXPECT_EQ(problem("second"), "");
  ::chmod((top_ / "a").c_str(), 0757);
  EXPECT_NE(problem("second"), "") << "a folder above the target";
  ::chmod((top_ / "a").c_str(), 0755);
  if (::geteuid() == 0) {
    ASSERT_EQ(::lchown((top_ / "link").c_str(), kSomebody, 0), 0);
    EXPECT_NE(problem("second").find("link belongs to"), std::string::npos);
  }
  fs::create_symlink(top_ / "loop", top_ / "loop");
  EXPECT_NE(problem("loop").find("too many symbolic links"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::protocol
