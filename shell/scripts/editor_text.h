// A session script as one C++ file, for tools that know C++ and no cells, such as clangd.
//
//   // %% the model              #include <fstream>            (what all cells include, first)
//   struct Net { … };            namespace lockstep_script {
//   %verify net                  struct Net { … };
//   net->train();                void lockstep_statements_1() { net->train(); ;}
//
// Statements become the bodies of functions. Magics become blanks. What defines a name again stands in a namespace
// within the one of the earlier definition. Text is only inserted or replaced by text of the same length, so that every
// position of the script has one in the file. Lexical: what does not compile is translated as well as it goes.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shell/scripts/magic.h"

namespace lockstep::shell {

/// Both from 0; characters in UTF-16 units, as the Language Server Protocol counts them.
struct EditorPosition {
  int line = 0, character = 0;
};

class EditorText {
 public:
  /// Translates `script`, in the percent format.
  EditorText(std::string_view script, const MagicRegistry& registry);

  const std::string& text() const { return text_; }
  EditorPosition to_file(EditorPosition in_script) const;
  /// For what was inserted it is the position of the insertion. Lines of hoisted includes have that of the #include.
  EditorPosition to_script(EditorPosition in_file) const;

 private:
  struct Insertion {
    int character;  // in the script's line
    int length;
    bool opens;  // before what follows, which it moves; otherwise after what comes before it
  };
  std::string text_;
  std::vector<int> included_at_;  // the script's line of each line before the script's first
  std::map<int, std::vector<Insertion>> insertions_;  // of a line of the script, in order
};

/// Whether a text has cells: a line `// %%`.
bool is_session_script(std::string_view text);

}  // namespace lockstep::shell
