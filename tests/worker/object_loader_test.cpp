// Objects that are loaded without the dynamic loader, beside those that it has loaded.
#include "worker/loader/object_loader.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "compiler/objects/shared_object.h"
#include "protocol/files.h"

namespace lockstep::worker {
namespace {

/// What is loaded stays to the end of the process: all tests have one loader, and one folder.
class LoaderTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = std::filesystem::temp_directory_path() / "loader-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    loader_ = new ObjectLoader(folder_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static std::string bytes_of(const std::string& name) {
    std::istringstream paths(LOCKSTEP_TEST_OBJECTS);
    for (std::string path; std::getline(paths, path, ':');)
      if (path.find("/" + name + ".cpp") != std::string::npos)
        return compiler::write_shared(protocol::read_file(path).value()).value();
    throw std::runtime_error("there is no object " + name);
  }

  static std::optional<ObjectLoader::Loaded> load_bytes(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ + "/" + name + "-" + std::to_string(files_++) + ".so";
    std::ofstream(path, std::ios::binary) << bytes;
    return loader_->load(path, bytes, "entry_of_" + name);
  }
  static std::optional<ObjectLoader::Loaded> load(const std::string& name) { return load_bytes(name, bytes_of(name)); }

  /// Loads both, and the library between them.
  static void load_all() {
    static const bool done = [] {
      if (!load("first")) throw std::runtime_error("the first object is not loaded");
      if (!::dlopen(LOCKSTEP_TEST_LIBRARY, RTLD_NOW | RTLD_GLOBAL)) throw std::runtime_error(::dlerror());
      if (!load("second")) throw std::runtime_error("the second object is not loaded");
      return true;
    }();
    (void)done;
  }

  template <typename... Arguments>
  static int call(const char* name, Arguments... arguments) {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(RTLD_DEFAULT, name));
    if (!function) throw std::runtime_error(std::string("no function ") + name);
    return function(arguments...);
  }
  static int (*function(const char* name))(int) { return reinterpret_cast<int (*)(int)>(::dlsym(RTLD_DEFAULT, name)); }

  static inline std::string folder_;
  static inline ObjectLoader* loader_ = nullptr;
  static inline int files_ = 0;
};

TEST_F(LoaderTest, NamesAreFoundFromEverywhere) {
  load_all();
  EXPECT_EQ(call("has_nobody"), -1);
  const int value = call("of_library") - 100;  // the library reads a variable of the first object
  EXPECT_EQ(call("use_library"), 100 + value + value + 1);
  EXPECT_EQ(call("of_library"), 101 + value);
}

TEST_F(LoaderTest, WhatIsLoadedFirstDefinesAName) {
  load_all();
  EXPECT_EQ(call("which"), 1);
  EXPECT_EQ(call("which_for_library"), 1);
  EXPECT_EQ(call("which_for_second"), 1);
  EXPECT_EQ(call("of_library_for_second"), 4);  // the library's is older than the second object's
  EXPECT_EQ(call("of_library_too"), 4);
  const int count = call("count_in_first");
  EXPECT_LT(count, 1000);
  EXPECT_EQ(call("count_in_second"), count + 1);
}

TEST_F(LoaderTest, ExceptionsPassObjectsOfBothKinds) {
  load_all();
  EXPECT_THROW(call("thrower", 3), std::out_of_range);
  EXPECT_THROW(call("throw_through_library", 3), std::out_of_range);
  EXPECT_EQ(call("length_of_error", function("throw_through_library"), 3), 14);
  EXPECT_EQ(call("error_through_two_objects", 3), 14);
  EXPECT_EQ(call("error_through_two_objects", 0), 40);
  const auto of_test = [](int value) -> int { throw std::runtime_error(std::string(static_cast<size_t>(value), 'x')); };
  EXPECT_EQ(call("length_of_error", static_cast<int (*)(int)>(of_test), 9), 9);
  EXPECT_THROW(call("call_from_library", static_cast<int (*)(int)>(of_test), 9), std::runtime_error);
  EXPECT_THROW(call("pass_on", static_cast<int (*)(int)>(of_test), 9), std::runtime_error);
}

TEST_F(LoaderTest, AnAddressHasAName) {
  load_all();
  Dl_info found = {};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(function("pass_on")) + 5), &found), 0);
  EXPECT_STREQ(found.dli_sname, "pass_on");
}

TEST_F(LoaderTest, WhatIsUnloadedIsFoundNoLonger) {
  const auto loaded = load("alone");
  ASSERT_TRUE(loaded);
  EXPECT_STREQ(*static_cast<const char* const*>(loaded->entry), "alone");
  EXPECT_EQ(call("of_alone", 0), 7);
  loader_->unload(*loaded);
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "of_alone"), nullptr);
  const auto again = load("alone");
  ASSERT_TRUE(again);
  EXPECT_EQ(call("of_alone", 0), 7);
  EXPECT_THROW(call("of_alone", 1), int);
  loader_->unload(*again);
}

TEST_F(LoaderTest, AnObjectThatLacksSomethingIsNotLoaded) {
  EXPECT_FALSE(load("unresolved"));
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "of_unresolved"), nullptr);
  const std::string bytes = bytes_of("alone");
  EXPECT_FALSE(loader_->load(folder_ + "/missing.so", bytes, "entry_of_alone"));
  EXPECT_FALSE(load_bytes("nothing", bytes));  // no such entry
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "of_alone"), nullptr);
}

TEST_F(LoaderTest, WhatALinkerHasMadeIsLeftToTheDynamicLoader) {
  EXPECT_FALSE(read_simple_object(protocol::read_file(LOCKSTEP_TEST_LIBRARY).value()));
  EXPECT_FALSE(read_simple_object(""));
}

TEST_F(LoaderTest, ADamagedObjectIsRefusedOrRead) {
  const std::string whole = bytes_of("first");
  ASSERT_TRUE(read_simple_object(whole));
  for (size_t size = 0; size < whole.size(); size += 7) (void)read_simple_object(whole.substr(0, size));
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = whole;
    const auto segment = read_simple_object(whole)->data;
    for (int i = 0; i < 4; ++i) {
      // The headers, the tables at the beginning, and the dynamic section.
      const size_t at = i == 0   ? random() % 344
                        : i == 1 ? random() % std::min<size_t>(damaged.size(), 4096)
                                 : segment.p_offset + random() % 176;
      if (random() % 2 == 0) damaged[at] ^= static_cast<char>(1 << random() % 8);
    }
    const auto read = read_simple_object(damaged);
    if (!read) continue;
    for (const auto& relocation : read->relocations) EXPECT_LE(relocation.r_offset + 8, read->size);
    for (const auto& function : read->functions) EXPECT_LT(function.description, read->code.p_filesz);
  }
}

TEST_F(LoaderTest, OtherThreadsLookUpAndThrowMeanwhile) {
  load_all();
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!ends)
      if (call("error_through_two_objects", 3) != 14) ++wrong;
  });
  threads.emplace_back([&] {
    while (!ends)
      if (!::dlsym(RTLD_DEFAULT, "which") || ::dlsym(RTLD_DEFAULT, "nobody_defines_this")) ++wrong;
  });
  const std::string bytes = bytes_of("alone");
  for (int i = 0; i < 300; ++i) {
    const auto loaded = load_bytes("alone", bytes);
    ASSERT_TRUE(loaded);
    EXPECT_THROW(call("of_alone", 1), int);
    loader_->unload(*loaded);
  }
  ends = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(LoaderTest, ADebuggerFindsThem) {
  load_all();
  const auto loaded = load("alone");
  ASSERT_TRUE(loaded);
  const auto paths_at = [&] {
    std::vector<std::string> paths;
    for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag != DT_DEBUG) continue;
      for (auto* list = reinterpret_cast<r_debug_extended*>(entry->d_un.d_ptr); list; list = list->r_next) {
        const link_map* before = nullptr;
        for (const link_map* object = list->base.r_map; object; before = object, object = object->l_next) {
          EXPECT_EQ(object->l_prev, before);
          if (object->l_addr == loaded->base) paths.emplace_back(object->l_name);
        }
        if (list->base.r_version < 2) break;
      }
    }
    return paths;
  };
  const auto paths = paths_at();
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_TRUE(paths[0].starts_with(folder_ + "/alone-")) << paths[0];
  loader_->unload(*loaded);
  EXPECT_TRUE(paths_at().empty());
}

}  // namespace
}  // namespace lockstep::worker
