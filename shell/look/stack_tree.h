// Merges the stacks of ranks into one tree: what all ranks have in common stands there once, and what differs is seen at
// once, for 4 ranks or for 4,096.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "protocol/rank_set.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

/// One frame as the tree shows it.
struct TreeFrame {
  std::string text;  // "step (train.py:31)"
  bool is_library = false;  // several in a row are shown as one line
  bool operator<(const TreeFrame& other) const { return text < other.text; }
};

/// A stack of a rank: outermost frame first.
struct TreeStack {
  int rank = 0;
  std::vector<TreeFrame> frames;
  std::string state;  // what the rank does there: "waits for a lock"
};

/// Returns lines without their ends. `whole`: no frames of libraries are left out.
std::vector<std::string> stack_tree(const std::vector<TreeStack>& stacks, const Screen& screen, bool whole);

}  // namespace lockstep::shell
