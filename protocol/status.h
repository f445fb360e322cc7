// The states and kinds that messages and events name. Programs compare enumerators; the words for JSON and for people
// are in one table (status.cpp).
#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <type_traits>

namespace lockstep {

/// Says how a cell ended, or how one rank left it.
enum class CellStatus {
  ok,
  error,  // an exception
  compile_error,  // or it could not be loaded; nothing has run
  usage_error,  // a magic or a rank set; nothing has run
  interrupted,
  aborted,  // freed from a collective that other ranks did not enter
  timeout,
  dead,
  waiting  // not over: its last ranks wait for ranks that will not come
};

/// Says what a rank does at a moment.
enum class RankState { starting, idle, loading, running, waiting, regrouping, ending, dead };

/// Says what a cell writes to. The values are indices into OutputChannels (output_channel.h).
enum class Stream { standard_output, standard_error };

/// Says how the compilation of a cell ended.
enum class CompileStatus { ok, error, timeout, crash, cancelled };

enum class DiagnosticSeverity { error, warning, note };

/// Whether a text is a whole cell.
enum class TextStatus { complete, incomplete, invalid };

/// Says how far a loop over progress() is.
enum class LoopState {
  running,
  completed,  // to the end of its range
  stopped  // left before: a break, an exception, an interrupt, the end of the rank
};

/// Only faults count for exit codes, colour and the rule against false alarms.
enum class Severity { note, fault };

enum class Verdict;  // verdict.h, like the next
enum class FindingKind;

/// Not a constraint: compilers differ in how they write those into the names of functions, and liblockstep, its users and the
/// programs are compiled by several.
template <typename T>
using IfStatus =
    std::enable_if_t<std::is_same_v<T, CellStatus> || std::is_same_v<T, RankState> || std::is_same_v<T, Stream> ||
                     std::is_same_v<T, CompileStatus> || std::is_same_v<T, DiagnosticSeverity> ||
                     std::is_same_v<T, TextStatus> || std::is_same_v<T, LoopState> || std::is_same_v<T, Severity> ||
                     std::is_same_v<T, Verdict> || std::is_same_v<T, FindingKind>>;

/// Returns the word that JSON and people have for it: "compile_error". Static storage, terminated by a null character.
template <typename T, typename = IfStatus<T>>
std::string_view to_string(T value);

/// Returns the enumerator that `word` stands for. Throws nlohmann::json::other_error for a word that is none.
template <typename T, typename = IfStatus<T>>
T from_string(std::string_view word);

template <typename T, typename = IfStatus<T>>
void to_json(nlohmann::json& json, T value);
template <typename T, typename = IfStatus<T>>
void from_json(const nlohmann::json& json, T& value);

template <typename T, typename = IfStatus<T>>
std::ostream& operator<<(std::ostream& stream, T value);

}  // namespace lockstep
