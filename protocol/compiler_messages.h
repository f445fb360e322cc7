// The session and lockstep-compiler exchange requests and responses over a stream socket (pipe_channel.h), one at a
// time.
//
// Life of a cell: Compile → (the session loads and runs the objects) → Settle. Settle says on which ranks the objects
// are loaded and how far each rank got, so that the compiler knows which names each rank sees. A Compile without a
// Settle before the next request is rolled back.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/status.h"
#include "protocol/version.h"

namespace lockstep::protocol {

/// Turns a cell into one object per group of ranks that see the same definitions of the names it uses (normally one
/// group).
struct Compile {
  int64_t cell = 0;
  std::string
      text;  // as the user typed it, without magics; lines blanked where a magic stood, so that line numbers hold
  RankSet ranks;
  int optimize = 0;    // 0 to 3: %%O1 ...
  bool debug = false;  // full debug information rather than line tables
  double time_limit_s = 60;
  std::string directory;  // for #include "..." : what %cd says
  int64_t number = 0;  // what people call the cell: in messages, file names and line tables. The parts of a cell that
      // a line magic splits are compiled one by one and share a number. 0: the same as `cell`
  std::vector<std::pair<int64_t, int64_t>>
      repeats;  // numbers of cells that have run the code of an earlier one: (7, 5)
};

/// Gives up the Compile that is under way. The Compile is answered by Compiled with status `cancelled`; Cancel itself
/// has no answer, and means nothing when nothing is being compiled.
struct Cancel {
  int64_t cell = 0;
};

/// Says how a compiled cell ended on its ranks. Sent once per Compile that succeeded, before the next.
struct Settle {
  int64_t cell = 0;
  bool loaded = false;  // false: no rank keeps it, the compiler forgets the cell
  std::map<int, int64_t> steps_done;  // rank → how many of the cell's steps were completed
};

/// Hides names from later cells (%reset NAME...); empty: all names of all cells. With `undo`, the number of a cell:
/// what it defined steps back, and what it had replaced is seen again (%undo).
struct Forget {
  std::vector<std::string> names;
  int64_t undo = 0;
  // The rank that does not see `lost`, names by cell: its process was started again, and what defines them has not run.
  // Nothing else is forgotten then.
  int rank = -1;
  std::map<int64_t, std::vector<std::string>> lost = {};
  RankSet like =
      {};  // empty: `rank` is not new. It has loaded what all of these have, and sees those names without `lost`
};

/// Asks for the names that cells have defined: for %who and messages.
struct ListNames {};

/// Asks for completions at byte `offset` of `text`, as ranks `ranks` see it, and for the signatures of the call whose
/// arguments stand there.
struct Complete {
  std::string text;
  int64_t offset = 0;
  RankSet ranks;
  bool signatures_only = false;  // no completions
};

/// Asks what EXPR is: type, declaration, comment.
struct Inspect {
  std::string expression;
  RankSet ranks;
};

using CompilerRequest = std::variant<Compile, Settle, Forget, ListNames, Complete, Inspect, Cancel>;

/// One initialiser or statement, which runs as a unit, with the names that it brings into being.
struct Step {
  int line = 0;  // first line, from 1
  std::vector<std::string> names;
};
void to_json(nlohmann::json& json, const Step& step);
void from_json(const nlohmann::json& json, Step& step);

/// A loadable object. Frame `frame` of the response holds its bytes.
struct CompiledObject {
  RankSet ranks;  // who gets it
  std::string name;  // "cell_7.so", "cell_7.2.so": unique in a session
  std::string entry;  // symbol of `const lockstep_cell_entry` (protocol/cell_abi.h)
  std::vector<Step> steps;
  std::string source;  // text for <session>/cells/cell_7.cpp, which line tables name
  int64_t frame = 0;
};

struct Diagnostic {
  DiagnosticSeverity severity = DiagnosticSeverity::error;
  int line = 0;  // of the cell; 0 where it is not in the cell
  int column = 0;
  std::string file;  // empty: the cell
  std::string message;
};

struct Compiled {
  int64_t cell = 0;
  CompileStatus status = CompileStatus::error;
  std::vector<Diagnostic> diagnostics;
  std::string rendered;  // diagnostics as people read them: user's lines, carets, no generated name
  std::string rendered_whole;  // the same with what `rendered` leaves out; empty where it leaves nothing out
  std::vector<CompiledObject> objects;
  bool repeatable =
      false;  // it defines nothing and keeps no state of its own: while nothing else is defined either, the
  // same text on the same ranks may run the object again
  double ms = 0;
};

struct Settled {};

struct Name {
  std::string name;
  std::string kind;  // variable, function, type, template, macro, namespace, alias
  std::string type;  // as people write it
  int64_t cell = 0;  // of the newest definition
  RankSet ranks;  // that see it
};

struct Names {
  std::vector<Name> names;
};

struct Completion {
  std::string text;  // what replaces [begin, end)
  std::string kind;  // variable, function, type, member, keyword, macro, namespace; of the session: magic, option,
      // choice, path, ranks
  std::string detail;  // signature or type; of a magic what it does
};

/// One overload of the function, constructor or template whose arguments stand at the offset.
struct Signature {
  std::string label;  // "Tensor zeros(IntArrayRef size, TensorOptions options = {})"
  std::vector<std::pair<int64_t, int64_t>> parameters;  // bytes [begin, end) of label
  int64_t active = -1;  // the parameter at the offset, an index; -1: it takes no more
};

struct Completions {
  int64_t begin = 0, end = 0;  // bytes of the text that completions replace
  std::vector<Completion> completions;  // best first: names of cells and members before all else, macros and reserved
      // names last. Overloads of a name follow one another
  std::vector<Signature> signatures;
};

struct Inspection {
  bool found = false;
  std::string type;
  std::string declaration;
  std::string comment;
  std::string source;  // the definition as it was written, in a cell or a header; empty where there is none at hand
  std::string where;  // file and line of what a header defines: "torch/nn/module.h:62"
  std::optional<int64_t> cell;  // where it was defined, if in a cell
};

/// First message of the compiler, unasked: it is ready for requests.
struct CompilerReady {
  Versions versions;
  std::string prelude;  // path of the prelude's shared object, which every worker loads first
  double ms = 0;
};

/// The compiler can't work: no header, no space, damaged. It ends after this.
struct CompilerFailed {
  std::string message;
};

/// A step of a build that takes long: the precompiled header, once per installation.
struct StartStep {
  std::string what;  // "the headers of LibTorch"
  int number = 0, count = 0;  // step `number` of `count`, from 1
  std::optional<double> last_s;  // seconds that this step and those after it took in the last build on this machine
};

/// Something takes long at the start.
struct CompilerProgress {
  std::string message;  // a sentence for the user; empty: no more than another step has begun
  std::optional<StartStep> step;  // nothing where the compiler only waits (for another session that builds)
};

using CompilerResponse =
    std::variant<Compiled, Settled, Names, Completions, Inspection, CompilerReady, CompilerFailed, CompilerProgress>;

/// JSON header of a message: {"kind":"compile", ...}. Binary frames travel beside it.
nlohmann::json encode(const CompilerRequest& request);
nlohmann::json encode(const CompilerResponse& response);
/// Throw ChannelError for a kind that this version does not know.
CompilerRequest decode_request(const nlohmann::json& header);
CompilerResponse decode_response(const nlohmann::json& header);

}  // namespace lockstep::protocol
