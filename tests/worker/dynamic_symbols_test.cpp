// Names of functions straight from the dynamic section: worker/process/dynamic_symbols.h.
#include "worker/process/dynamic_symbols.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>

using namespace lockstep::worker;

namespace {

std::string name_of(uintptr_t address) {
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return "in no object";
  std::vector<std::string> names(1);
  DynamicSymbols(found.dlfo_link_map).name({address}, names);
  return names.front();
}

}  // namespace

TEST(DynamicSymbols, AFunctionOfALibrary) {
  const auto address = reinterpret_cast<uintptr_t>(::dlsym(RTLD_DEFAULT, "qsort_r"));
  ASSERT_NE(address, 0U);
  EXPECT_EQ(name_of(address + 1), "qsort_r");
  EXPECT_EQ(name_of(reinterpret_cast<uintptr_t>(own_object()->l_ld)), "");  // no function is there
}

// A thread that reads the clock is there. Its dynamic section has offsets where other objects have addresses.
TEST(DynamicSymbols, AFunctionOfTheVdso) {
  if (::getauxval(AT_SYSINFO_EHDR) == 0) GTEST_SKIP() << "this kernel has no vdso";
  void* const vdso = ::dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(vdso, nullptr);
  const auto address = reinterpret_cast<uintptr_t>(::dlsym(vdso, "__vdso_clock_gettime"));
  if (address == 0) GTEST_SKIP() << "the vdso of this processor has other names";
  const std::string name = name_of(address + 1);
  EXPECT_TRUE(name.ends_with("clock_gettime")) << name;  // two names of one function
  ::dlclose(vdso);
}
