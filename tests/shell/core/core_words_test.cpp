// Where the core file of a process is, by the kernel's pattern (core(5)).
#include <gtest/gtest.h>

#include <csignal>

#include "shell/processes/deaths.h"

namespace lockstep::shell {
namespace {

const ProcessEnd kWithCore{.signal = SIGSEGV, .code = 0, .core = true};

TEST(CoreWords, NameTheFile) {
  EXPECT_EQ(core_words(kWithCore, 17, "/var/cores/core.%e.%p"), "; its core file is /var/cores/core.%e.17");
  EXPECT_EQ(core_words(kWithCore, 17, "a%%b-%p"), "; its core file is a%b-17 in its working directory");
}

TEST(CoreWords, NameTheProgramThatGotIt) {
  EXPECT_EQ(core_words(kWithCore, 17, "|/usr/lib/systemd/systemd-coredump %P %u"),
            "; its core went to /usr/lib/systemd/systemd-coredump: coredumpctl debug 17");
  EXPECT_EQ(core_words(kWithCore, 17, "|/usr/bin/collector"), "; its core went to /usr/bin/collector");
}

TEST(CoreWords, SayNothingWhereThereIsNone) {
  EXPECT_EQ(core_words({.signal = SIGKILL, .code = 0, .core = false}, 17, "core.%p"), "");
}

}  // namespace
}  // namespace lockstep::shell
