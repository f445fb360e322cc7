// Shows completions below the line that is being typed: in columns, with the signature of the one that is selected, or
// of each where they are few; and the signatures of a call with the parameter at the cursor marked.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

class CandidateMenu {
 public:
  /// Overloads of a name, which follow one another, are one candidate.
  explicit CandidateMenu(const std::vector<protocol::Completion>& completions);

  size_t size() const { return candidates_.size(); }
  /// Returns the text that all of them begin with.
  std::string common_prefix() const;
  const std::string& text(size_t index) const { return candidates_[index].text; }
  std::optional<size_t> selected() const { return selected_; }
  /// Selects the next one, or the one before; around the ends.
  void select_next(int step);
  std::vector<std::string> rows(const Screen& screen) const;

 private:
  struct Candidate {
    std::string text, kind, detail;
    size_t overloads = 1;
  };

  std::string described(const Candidate& candidate) const;

  std::vector<Candidate> candidates_;
  std::optional<size_t> selected_;
};

std::vector<std::string> signature_rows(const std::vector<protocol::Signature>& signatures, const Screen& screen);

}  // namespace lockstep::shell
