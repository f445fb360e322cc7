#include "shell/look/stack_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspectors/hang/words.h"

namespace lockstep::shell {
namespace {

class Tree {
 public:
  Tree(const Screen& screen, bool whole) : screen_(screen), whole_(whole) {}

  /// Writes `stacks`, which are equal in their first `depth` frames, behind `indent`.
  void write(const std::vector<const TreeStack*>& stacks, size_t depth, const std::string& indent) {
    const size_t common = common_depth(stacks, depth);
    write_frames(stacks.front()->frames, depth, common, indent);
    std::map<std::string, RankSet> states;  // of ranks whose stacks end here
    std::map<TreeFrame, std::vector<const TreeStack*>> further;
    for (const TreeStack* each : stacks)
      if (each->frames.size() == common)
        states[each->state].insert(each->rank);
      else
        further[each->frames[common]].push_back(each);
    if (further.empty() && states.size() == 1) return;
    std::vector<std::vector<const TreeStack*>> branches;
    for (auto& [frame, of_frame] : further) branches.push_back(std::move(of_frame));
    std::ranges::sort(branches, {}, [](const auto& branch) { return branch.front()->rank; });
    size_t left = branches.size() + states.size();
    const auto begin_branch = [&](const RankSet& ranks, const std::string& state) {
      --left;
      const char* const fork = screen_.unicode ? (left > 0 ? "├ " : "└ ") : "+ ";
      line(indent, fork + paint(screen_, Style::bold, ranks.words()) +
                       (state.empty() ? "" : ": " + inspect::said_of(state, ranks.size())));
      return indent + (left == 0 ? "    " : screen_.unicode ? "│   " : "|   ");
    };
    for (const auto& [state, ranks] : states) begin_branch(ranks, state.empty() ? "here" : state);
    for (const auto& branch : branches) {
      const std::string inner = begin_branch(ranks_of(branch), state_of(branch));
      write(branch, common, inner);
    }
  }

  std::vector<std::string> take() { return std::move(lines_); }

  static RankSet ranks_of(const std::vector<const TreeStack*>& stacks) {
    RankSet ranks;
    for (const TreeStack* each : stacks) ranks.insert(each->rank);
    return ranks;
  }

  /// Returns what all of them do; empty where they differ.
  static std::string state_of(const std::vector<const TreeStack*>& stacks) {
    const bool one =
        std::ranges::all_of(stacks, [&](const TreeStack* each) { return each->state == stacks.front()->state; });
    return one ? stacks.front()->state : std::string();
  }

 private:
  static size_t common_depth(const std::vector<const TreeStack*>& stacks, size_t depth) {
    const std::vector<TreeFrame>& first = stacks.front()->frames;
    for (; depth < first.size(); ++depth)
      for (const TreeStack* each : stacks)
        if (depth >= each->frames.size() || each->frames[depth].text != first[depth].text) return depth;
    return depth;
  }

  /// Of frames of libraries the first shows what the program has called, and the last where that is.
  void write_frames(const std::vector<TreeFrame>& frames, size_t begin, size_t end, const std::string& indent) {
    while (begin < end) {
      size_t run = begin;
      while (run < end && frames[run].is_library) ++run;
      constexpr size_t kShown = 2;
      if (whole_ || run - begin <= kShown + 1) {
        line(indent, frames[begin++].text);
        continue;
      }
      line(indent, frames[begin].text);
      line(indent, paint(screen_, Style::dim,
                         fmt::format("{} {} frames of libraries", signs(screen_).dots, run - begin - kShown)));
      line(indent, frames[run - 1].text);
      begin = run;
    }
  }

  void line(const std::string& indent, const std::string& text) { lines_.push_back(indent + text); }

  const Screen& screen_;
  const bool whole_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> stack_tree(const std::vector<TreeStack>& stacks, const Screen& screen, bool whole) {
  Tree tree(screen, whole);
  std::vector<const TreeStack*> all;
  for (const TreeStack& each : stacks) all.push_back(&each);
  if (!all.empty()) tree.write(all, 0, "  ");
  return tree.take();
}

}  // namespace lockstep::shell
