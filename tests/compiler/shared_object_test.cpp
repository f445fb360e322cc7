// Shared objects that are written without a linker: what they do, and what is left to the linker.
#include "compiler/objects/shared_object.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <sstream>

#include "protocol/descriptor.h"
#include "protocol/files.h"

namespace lockstep::compiler {
namespace {

std::string object_of(const std::string& name) {
  std::istringstream paths(LOCKSTEP_TEST_OBJECTS);
  for (std::string path; std::getline(paths, path, ':');)
    if (path.find("/" + name + ".cpp") != std::string::npos) return protocol::read_file(path).value();
  throw std::runtime_error("there is no object " + name);
}

class Loaded {
 public:
  explicit Loaded(const std::string& bytes) : file_(::memfd_create("shared object", MFD_CLOEXEC)) {
    EXPECT_TRUE(write_all(file_.get(), bytes));
    handle_ = ::dlopen(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!handle_) throw std::runtime_error(::dlerror());
  }
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(handle_, name));
    if (!function) throw std::runtime_error(std::string("no function ") + name);
    return function(arguments...);
  }

 private:
  Descriptor file_;
  void* handle_;
};

TEST(SharedObject, DoesWhatTheSourceSays) {
  const auto bytes = write_shared(object_of("simple"));
  ASSERT_TRUE(bytes);
  const Loaded simple(*bytes);
  EXPECT_EQ(simple.call("caught", 3), 5);
  EXPECT_EQ(simple.call("caught", 9), -static_cast<int>(std::string("more than 8").size()));
  EXPECT_EQ(simple.call("sides"), 4);
  EXPECT_EQ(simple.call("data", 99), 5 + 's');
  EXPECT_EQ(simple.call("absolute", -2), 9);
  EXPECT_EQ(simple.call("count"), 41);
  // Of two definitions of one name, the one that was loaded first is everybody's.
  const Loaded again(write_shared(object_of("interposed")).value());
  EXPECT_EQ(again.call("count_again"), 42);
}

TEST(SharedObject, IsLeftToTheLinkerWhereItIsNotSimple) {
  EXPECT_FALSE(write_shared(object_of("thread_local")));
  EXPECT_FALSE(write_shared(object_of("constructor")));
  EXPECT_FALSE(write_shared(object_of("far")));
  EXPECT_FALSE(write_shared(""));
}

TEST(SharedObject, ADamagedObjectIsRefusedOrWritten) {
  const std::string whole = object_of("simple");
  for (size_t size = 0; size < whole.size(); size += 101) (void)write_shared(whole.substr(0, size));
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string damaged = whole;
    // Headers are at both ends; half of the changes go there.
    for (int i = 0; i < 8; ++i) {
      const size_t near_end = damaged.size() - 1 - random() % (damaged.size() / 4);
      damaged[i % 2 == 0   ? random() % damaged.size()
              : i % 4 == 1 ? random() % 64
                           : near_end] ^= static_cast<char>(1 << random() % 8);
    }
    (void)write_shared(damaged);
  }
}

}  // namespace
}  // namespace lockstep::compiler
