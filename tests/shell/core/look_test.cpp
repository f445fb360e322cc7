// What `lockstep look` shows: stacks of many ranks as one tree, and what py-spy prints.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "shell/look/copies.h"
#include "shell/look/py_spy.h"
#include "shell/look/stack_tree.h"
#include "shell/look/thread_state.h"

using namespace lockstep::shell;
using ::testing::ElementsAre;
using ::testing::SizeIs;

namespace {

TreeStack stack_of(int rank, std::vector<std::string> frames, std::string state = "") {
  TreeStack stack{.rank = rank, .state = std::move(state)};
  for (std::string& each : frames) {
    const bool is_library = each.starts_with("torch");
    stack.frames.push_back({.text = std::move(each), .is_library = is_library});
  }
  return stack;
}

constexpr Screen kUnicode = {.unicode = true};

}  // namespace

TEST(StackTree, ShowsOnceWhatRanksHaveInCommon) {
  std::vector<TreeStack> stacks;
  for (int rank = 0; rank < 4096; ++rank)
    stacks.push_back(rank == 17 ? stack_of(rank, {"main", "load"}, "waits for a lock")
                                : stack_of(rank, {"main", "step", "all_reduce"}, "waits in all_reduce"));
  EXPECT_THAT(stack_tree(stacks, kUnicode, false),
              ElementsAre("  main", "  ├ ranks 0-16,18-4095: wait in all_reduce", "  │   step", "  │   all_reduce",
                          "  └ rank 17: waits for a lock", "      load"));
}

TEST(StackTree, ShowsRanksWhoseStacksAreTheBeginningOfOthers) {
  EXPECT_THAT(stack_tree({stack_of(0, {"main"}, "computes"), stack_of(1, {"main", "step"})}, Screen(), false),
              ElementsAre("  main", "  + rank 0: computes", "  + rank 1", "      step"));
}

TEST(StackTree, LeavesOutFramesOfLibraries) {
  const std::vector<TreeStack> stacks = {stack_of(0, {"main", "torch 1", "torch 2", "torch 3", "torch 4", "hook"})};
  EXPECT_THAT(stack_tree(stacks, kUnicode, false),
              ElementsAre("  main", "  torch 1", "  … 2 frames of libraries", "  torch 4", "  hook"));
  EXPECT_THAT(stack_tree(stacks, kUnicode, true), SizeIs(6));
}

TEST(PySpy, IsRead) {
  const auto threads = read_py_spy(R"([{"os_thread_id": 7, "thread_name": "MainThread", "owns_gil": true, "frames":
    [{"name": "step", "filename": "/home/me/train.py", "line": 12, "locals": null}]},
    {"os_thread_id": null, "thread_name": null, "frames": []}])");
  ASSERT_THAT(threads, SizeIs(2));
  EXPECT_EQ(threads[0].id, 7);
  EXPECT_TRUE(threads[0].holds_lock);
  EXPECT_THAT(threads[0].frames, ElementsAre(lockstep::inspect::EvidenceFrame{"step", "/home/me/train.py", 12}));
  EXPECT_EQ(threads[1].name, "");
}

TEST(Copies, LeaveAProcessThatDoesNotAnswer) {
  const auto answers = ask_in_copies({1, 2, 3, 4, 5}, std::chrono::milliseconds(200), [](int64_t pid) {
    while (pid == 3) ::pause();
    if (pid == 4) ::_exit(1);
    return std::to_string(10 * pid);
  });
  EXPECT_THAT(answers, ElementsAre(std::pair(1, "10"), std::pair(2, "20"), std::pair(5, "50")));
}

TEST(ThreadState, IsOfThisThread) {
  const auto state = thread_state(::getpid(), ::getpid());
  ASSERT_TRUE(state);
  EXPECT_TRUE(state->is_running());
  EXPECT_FALSE(thread_state(::getpid(), 1));
}
