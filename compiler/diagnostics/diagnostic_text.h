// Composes the text of the messages about a cell: each error or warning with its notes, the user's line first, and no
// more than a reader takes in.
#pragma once
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// A note, with the lines that it is drawn in.
struct NoteText {
  std::string message, text;
  bool is_here = false;  // it points into this cell
};

/// An error or warning with clang's notes on it.
struct MessageGroup {
  bool is_error = false;
  bool is_here = false;
  std::string text;
  /// The same error at the line of this cell that led to it, where the error itself lies elsewhere: in a template of a
  /// header, or of an earlier cell. Empty where there is none.
  std::string text_here;
  std::vector<NoteText> notes;
};

struct DiagnosticText {
  std::string brief;
  std::string whole;  // empty where `brief` leaves nothing out
};

/// With `brief` an error has some 40 lines at most, and all messages some 120; the first errors are complete.
DiagnosticText compose(const std::vector<MessageGroup>& groups);

}  // namespace lockstep::compiler
