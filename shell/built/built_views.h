// Follows the ranks of a session through a built file: which recorded rank each of them is like, and so which object it
// gets for a cell. Pure: requests in, answers out.
//
// A rank is followed by what it has done, not by its number: it is like a recorded rank that has taken part in the same
// cells and come as far in them. So a file that was built for 2 ranks also runs on 8, and a rank that dies takes nothing
// from the others. Where no recorded rank has done exactly the same, one that differs in names which the cell does not
// mention will do: the compiler would have made the same object.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shell/built/built_file.h"

namespace lockstep::shell {

class BuiltViews {
 public:
  /// The session has this index in the script: 0, and one more each time that the ranks have been started again.
  BuiltViews(std::shared_ptr<const BuiltFile> file, size_t session);

  /// Returns the objects of a cell for its ranks; frames are indices of BuiltFile::blobs. Returns nothing where the
  /// file has none for the views that they have: why_not() says why.
  std::optional<protocol::Compiled> compile(const protocol::Compile& request);
  /// Says for people what differs, and what to do.
  const std::string& why_not() const { return why_not_; }
  /// Takes how the cell that compile() found ended. Without it that cell is forgotten.
  void settle(const protocol::Settle& settle);
  /// Returns false where the file was built without it.
  bool forget(const protocol::Forget& forget);
  std::optional<protocol::Inspection> inspect(const protocol::Inspect& request) const;
  /// Returns names as the ranks see them, in the order of the recording.
  protocol::Names names() const;

 private:
  /// A recorded rank that a rank may be like, and how far the two have come.
  struct Candidate {
    size_t take = 0;
    int rank = 0;
    size_t next = 0;  // step of the take
    size_t forgotten = 0;  // of forgets_
    std::set<std::string> differs;  // names that one of the two sees, or sees another definition of
    bool uneven = false;  // one of the two has come further in a cell
    bool lacks_directive = false;  // one of the two has not taken part in a cell with a using directive
  };
  struct Hit {
    Candidate candidate;  // at the step
    const BuiltStep* step = nullptr;
  };

  const BuiltSteps& steps(const Candidate& candidate) const;
  std::vector<Candidate> candidates(int rank) const;
  std::optional<Hit> find(Candidate candidate, const protocol::Compile& request) const;
  static void choose_common(std::map<int, std::vector<Hit>>& hits);
  std::string conflict(const Candidate& candidate, const std::string& text) const;
  std::set<std::string> defined_by(const Candidate& at) const;
  const protocol::Names* names_before(const Candidate& candidate) const;
  std::string explain(const protocol::Compile& request, const RankSet& ranks,
                      const std::set<std::string>& conflicts) const;

  std::shared_ptr<const BuiltFile> file_;
  size_t session_;
  std::map<int, std::vector<Candidate>> views_;  // best first; of ranks that have taken part in a cell
  std::map<int, std::vector<Hit>> pending_;  // of the cell that compile() found last
  std::vector<protocol::Forget> forgets_;
  std::string why_not_;
};

}  // namespace lockstep::shell
