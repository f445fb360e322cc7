// A magic is one file under shell/magics/ that registers itself and carries its help. How to add one: docs/magics.md.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/rank_set.h"
#include "shell/scripts/language.h"

namespace lockstep::shell {

struct CellOutcome;  // shell/session/session.h
struct SessionCore;  // shell/session/session_core.h

/// What a magic gets to work with.
struct MagicCall {
  SessionCore& session;
  std::string arguments;                      // of the magic's line, trimmed
  std::string body;                           // of a cell magic: the rest of the cell
  int line = 1;                               // where the magic stands in the cell
};

/// How far a cell came, for what runs after it.
struct CellEnd {
  bool began = false;  // whether C++ of it ran on any rank
  RankSet completed;  // ranks that ran all of it
};

/// How a cell magic changes the way in which the rest of its cell is run.
struct CellSettings {
  std::optional<RankSet> ranks;
  std::optional<Language> language;  // none: the session's
  std::optional<int> optimize;
  bool debug = false;
  bool time = false;
  bool timeit = false;
  bool own_names = false;  // what Python code assigns and defines is gone after it
  /// C++ that runs on the cell's ranks before the cell, and C++ that runs after it, also where the cell failed. The
  /// second is asked for when the cell has ended, so that it can use names that the cell has defined.
  std::string before;
  std::function<std::string(const CellSettings&, const CellEnd&)> after;
  /// Replaces all of the above: runs the body of the cell.
  std::function<void(const CellSettings&)> run;
};

struct Magic {
  std::string name;  // without %
  std::string usage;  // "%rank SPEC [CODE]"
  std::string summary;  // one line for %help
  std::string help;  // what `%NAME?` shows
  std::function<CellOutcome(MagicCall&)> line;  // empty: it is a cell magic only
  std::function<void(MagicCall&, CellSettings&)> cell;  // empty: it is a line magic only
  bool at_any_time = false;  // typed while a cell runs, it is done at once
  bool in_jobs = false;  // it works at a prompt over a Python job, too
  bool only_in_jobs = false;  // it works there only
  /// What the line magic does there instead; empty: the same, or nothing.
  std::function<CellOutcome(MagicCall&)> job_line;
  bool takes_text = false;  // a cell magic: what follows is text of any kind, without magics in it
  std::optional<Language> language;  // of code after the line magic; none: the session's
};

/// What `%NAME?` shows: usage, summary, help.
std::string help_of(const Magic& magic);

/// The table of all magics. Names that are unknown throw UsageError with the nearest name.
class MagicRegistry {
 public:
  static MagicRegistry& instance();
  void add(Magic magic);
  const Magic& find(std::string_view name, bool cell_magic) const;
  bool knows(std::string_view name) const;
  std::vector<const Magic*> all() const;
  /// Those that work in a session, or at a prompt over a Python job.
  std::vector<const Magic*> available(bool in_job) const;

 private:
  std::map<std::string, Magic, std::less<>> magics_;
};

/// `static const RegisterMagic kSync({...});` at file scope.
struct RegisterMagic {
  explicit RegisterMagic(Magic magic) { MagicRegistry::instance().add(std::move(magic)); }
};

}  // namespace lockstep::shell
