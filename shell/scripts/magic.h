// A magic is one file under shell/magics/ that registers itself and carries its help. How to add one: docs/magics.md.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/rank_set.h"
#include "shell/scripts/language.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {

struct CellOutcome;  // shell/cells/cell_result.h
class SessionCore;  // shell/session/session_core.h

/// A magic gets this to work with.
struct MagicCall {
  SessionCore& session;
  std::string arguments;                      // of the magic's line, trimmed
  std::string body;                           // of a cell magic: the rest of the cell
  int line = 1;                               // where the magic stands in the cell
  MagicArguments given;                       // the arguments, read by the description of the magic
};

/// Says how far a cell came, for what runs after it.
struct CellEnd {
  bool began = false;  // whether C++ of it ran on any rank
  RankSet completed;  // ranks that ran all of it
};

/// Says how often %timeit runs its code; 0: as often as it takes.
struct Repeats {
  int64_t loops = 0;  // in one measurement
  int64_t runs = 0;   // measurements
};

/// Says how a cell magic changes the way in which the rest of its cell is run.
struct CellSettings {
  std::optional<RankSet> ranks;
  std::optional<Language> language;  // none: the session's
  std::optional<int> optimize;
  bool debug = false;
  bool time = false;
  std::optional<Repeats> timeit;
  bool own_names = false;  // what Python code assigns and defines is gone after it
  bool keeps_names = true;  // CellEvent::keeps_names
  /// C++ that runs on the cell's ranks before the cell, and C++ that runs after it, also where the cell failed. The
  /// second is asked for when the cell has ended, so that it can use names that the cell has defined.
  std::string before;
  std::function<std::string(const CellSettings&, const CellEnd&)> after;
  /// Replaces all of the above: runs the body of the cell.
  std::function<void(const CellSettings&)> run;
};

/// Says how a magic is used: its line in a session, its line where the ranks are Python, or as a cell magic.
enum class MagicForm { line, job_line, cell };

/// Says what a prompt is over: ranks in C++, ranks in Python that the session has started, or those of a Python job.
enum class PromptKind { cpp, python, job };

struct Magic {
  std::string name;  // without %
  std::string summary;  // one line for %help
  std::string help = {};  // what `%NAME?` shows above the help of the arguments
  MagicDescription takes = {};  // of the line magic
  MagicDescription cell_takes = {};  // of the cell magic
  std::function<CellOutcome(MagicCall&)> line = {};  // empty: it is a cell magic only
  std::function<void(MagicCall&, CellSettings&)> cell = {};  // empty: it is a line magic only
  bool verbatim = false;  // the line magic gets its text as it stands, and `given` is empty
  bool at_any_time = false;  // typed while a cell runs, it is done at once
  bool in_jobs = false;  // it works where the ranks are Python, too
  bool only_in_jobs = false;  // it works at a prompt over a Python job only
  bool only_with_python = false;  // it works where the ranks are Python only
  bool in_sessions = false;  // its line works alike where the session has started the ranks, C++ or Python
  /// What the line magic does where the ranks are Python instead; empty: the same, or nothing.
  std::function<CellOutcome(MagicCall&)> job_line = {};
  std::optional<MagicDescription> job_takes = {};  // none: as in a session of C++
  bool takes_text = false;  // a cell magic: what follows is text of any kind, without magics in it
  std::optional<Language> language = {};  // of code after the line magic; none: the session's
  std::string written = {};  // how it is used where that is not %NAME: "EXPR?"

  const MagicDescription& takes_as(MagicForm form) const;
  std::string usage_as(MagicForm form) const;
  /// Reads `text` in that form. Throws UsageError.
  MagicArguments read(MagicForm form, std::string_view text) const;
};

/// "%time CODE, %%time". `line_form`: that of line magics at this prompt.
std::string usage_of(const Magic& magic, MagicForm line_form);
/// Its help, and that of what it takes.
std::string details_of(const Magic& magic, MagicForm line_form);
/// Returns what `%NAME?` shows: usage, summary, details.
std::string help_of(const Magic& magic, MagicForm line_form);

/// Is the table of all magics. Names that are unknown throw UsageError with the nearest name.
class MagicRegistry {
 public:
  static MagicRegistry& instance();
  void add(Magic magic);
  const Magic& find(std::string_view name, bool cell_magic) const;
  bool knows(std::string_view name) const;
  std::vector<const Magic*> all() const;
  /// Returns those that work at such a prompt.
  std::vector<const Magic*> available(PromptKind kind) const;

 private:
  std::map<std::string, Magic, std::less<>> magics_;
};

/// Is used as `static const RegisterMagic kSync({...});` at file scope.
struct RegisterMagic {
  explicit RegisterMagic(Magic magic) { MagicRegistry::instance().add(std::move(magic)); }
};

}  // namespace lockstep::shell
