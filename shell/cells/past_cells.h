// Keeps what each rank has loaded and run, so that a process that takes the place of a lost rank can do it again.
//
// A process that is started again is not connected to the other ranks while it runs cells. So a step of a cell runs
// again where it had ended well on that rank and had met no other rank (collectives, messages, inspections), and where
// it mentions no name that is missing now because a step that defines it does not run. Making a process group or a
// wrapper is no meeting: collectives/log/meetings.h.
//
// Where ranks are Python the same holds for statements of their cells. The rank itself knows which names these need, and
// decides by what it is told of them: python/lockstep/session/_again.py. C++ cells beside them do not run again.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"
#include "shell/cells/restarted_rank.h"

namespace lockstep::shell {

/// An object of a cell.
struct PastObject {
  int64_t number = 0;  // what people call the cell
  RankSet ranks;  // that have loaded it
  protocol::Load load;
  std::shared_ptr<const std::string> bytes, text;  // of the object, of its cell
};

/// Lists what a process does to become the rank that it replaces.
struct Replay {
  struct Cell {
    size_t run = 0;  // for PastCells::ran_again()
    protocol::Run message;
    std::optional<protocol::Builtin> python;  // in place of `message`
    int64_t number = 0;  // what people call it
    bool runs = false;  // false: all of its steps are left out
  };
  std::vector<std::variant<const PastObject*, Cell>> actions;  // in order
  std::vector<LeftOutStep> left_out;
  std::map<int64_t, std::vector<std::string>> lost;  // names of objects that it does not have, for protocol::Forget
  RankSet cells_without_it;  // numbers of cells that have run on other ranks since its death
};

/// The log of what ranks have loaded and run.
class PastCells {
 public:
  /// Notes that an object of the cell that people call `number` is sent to these ranks.
  void sent(const RankSet& ranks, int64_t number, const protocol::Load& load, const std::string& bytes,
            const std::string& text);
  /// Notes that the cell has not been loaded, and is forgotten.
  void dropped(int64_t cell);
  /// Notes that the ranks begin to run it.
  void begins(const RankSet& ranks, const protocol::Run& run);
  /// Notes the same of a cell in Python.
  void begins(const RankSet& ranks, const protocol::Builtin& python);
  void done(int rank, const protocol::Done& message);
  /// Notes that the process of `rank` has ended. `cell` and `step` are where its log says it was; cell 0: between cells.
  /// The end of a process which has not come back() is nothing new.
  void died(int rank, int64_t cell, int64_t step);
  /// Notes that the session, which had `size` ranks, has more from now on.
  void session_grows(int size);
  /// Gives a new rank what all ranks of `like` have loaded and run. A later call adds what they have run since. `members`:
  /// the default group that it joins. Cells that it runs again find the numbers of that group.
  void join(int rank, const RankSet& like, const RankSet& members);
  /// Notes that a process has taken the place of the one that died.
  void came_back(int rank) { died_after_.erase(rank); }

  /// Returns what a new process of `rank` has to do, which loads no objects where it is in Python.
  Replay replay(int rank, bool is_python = false);
  /// Notes how a cell of a replay has ended. Returns false where it has failed, for another reason than that it meets ranks
  /// which were not there when it ran.
  bool ran_again(int rank, size_t run, const protocol::Done& message);

 private:
  struct Part {  // of a rank in a run
    bool has_ended = false;
    int64_t steps_done = 0;
    std::vector<int64_t> meetings;
    std::vector<int64_t> unknown;  // steps of a rank that has died, of which no other rank has reported
    std::vector<int64_t> groups;  // protocol::Done::groups
    bool failed_again = false;  // in a replay, at step `steps_done`
  };
  using Parts = std::map<int, Part>;  // by rank
  struct Run {
    protocol::Run message;
    Parts parts;
    int64_t object() const { return message.object != 0 ? message.object : message.cell; }
    int64_t object_number() const { return message.object != 0 ? message.object_number : message.number; }
  };
  struct PythonRun {
    protocol::Builtin message;
    Parts parts;
  };
  using Entry = std::variant<PastObject, Run, PythonRun>;

  const PastObject* object_of(int rank, int64_t cell) const;
  static void settle_death(int rank, Parts& parts);
  Parts& parts_of(size_t entry);
  void note_run_without(int rank, size_t entry, int64_t number, Replay& replay) const;
  void add_python(int rank, size_t entry, Replay& replay);
  static std::string why_not_again(const Part& part, size_t step, const std::string& need);

  std::vector<std::unique_ptr<Entry>> entries_;  // in order
  std::multimap<int64_t, const PastObject*> objects_;  // by cell
  std::map<int64_t, Parts*> runs_;  // the last of each cell
  std::map<int, RankSet> joined_;  // new ranks → the default group with which they came
  std::map<int, size_t> died_after_;  // of ranks that have not come back: entries at the death
};

}  // namespace lockstep::shell
