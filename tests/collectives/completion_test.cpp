// A thread that waits for a work: collectives/watch/completion.h.
#include "collectives/watch/completion.h"

#include <gtest/gtest.h>

#include <future>

using namespace lockstep::dist;
using namespace std::chrono_literals;

namespace {

class DoneWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

}  // namespace

// A work has tensors, and a tensor of a Python program needs the interpreter when it is destroyed.
TEST(Completion, LetsGoOfTheWorkBeforeAnyoneLearnsThatItIsDone) {
  auto work = c10::make_intrusive<DoneWork>();
  std::promise<size_t> uses;
  {
    Completion completion(work, 0ms);
    EXPECT_TRUE(completion.wait(0ms));
    EXPECT_EQ(work.use_count(), 1U);
    completion.future()->addCallback([&](c10::ivalue::Future&) { uses.set_value(work.use_count()); });
  }
  EXPECT_EQ(uses.get_future().get(), 1U);
}
