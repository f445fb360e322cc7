// Runs other programs on the terminal of this one: an editor, a pager.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::shell {

/// Runs `command` (of the user, for /bin/sh), followed by `arguments`, on the terminal, and waits for its end. Ctrl-C
/// is the program's meanwhile. `input` is its standard input; -1: the terminal. Returns its exit code as a shell does:
/// 127 for a command that does not exist, 128 and the number of the signal that ended it.
int run_in_foreground(const std::string& command, const std::vector<std::string>& arguments, int input = -1);

/// Returns $VISUAL, else $EDITOR, else vi.
std::string editor_command();

/// Opens `text` in that editor, as a file of C++. Returns what was saved; nothing where the editor failed.
std::optional<std::string> edit_in_editor(const std::string& text);

/// Shows `text` in $PAGER, else in less or more. Returns false where none works: the text has not been shown.
bool show_in_pager(std::string_view text);

}  // namespace lockstep::shell
