// `_7` is the value that cell 7 has shown, `_` the one that was shown last. The worker keeps the values
// (worker/cell/kept_values.h); the compiler knows their types, and declares the names in each cell that mentions them.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"
#include "compiler/names/names.h"
#include "compiler/tokens/cell_tokens.h"
#include "protocol/rank_set.h"

namespace lockstep::compiler {

/// Such a name has this kind in the name table; lists of the user's names leave it out.
inline constexpr const char* kKeptValue = "kept value";

/// Returns 7 for "_7", 0 for "_", and nothing for other names.
std::optional<int64_t> kept_number(const std::string& name);

class KeptValues {
 public:
  explicit KeptValues(clang::Sema& sema) : sema_(sema) {}

  /// Notes that the last expression of cell `number` has this type on these ranks. `tag` makes the name of the type
  /// unique. Takes effect when the cell is settled.
  void remember(int64_t number, const RankSet& ranks, clang::QualType type, const std::string& tag, int64_t steps);
  /// Keeps a remembered type if some rank has done all steps of the cell.
  void settle(const std::map<int, int64_t>& steps_done);
  /// Notes that cell `number` ran the code of cell `of` again.
  void repeat(int64_t number, int64_t of);
  void forget() { types_.clear(); }
  void join(int rank, const RankSet& like) {
    for (auto& [number, types] : types_)
      for (Type& type : types) type.ranks.join(rank, like);
  }

  /// Returns the text of declarations of the values among `referred`, for a rank, on the line where the cell mentions
  /// the first of them. Names that a cell has defined, or that are in a namespace that it uses (std::placeholders::_1),
  /// are not declared.
  std::string declarations(const std::set<std::string>& referred, const Tokens& tokens, const NameTable& names,
                           int rank) const;

 private:
  struct Type {
    RankSet ranks;
    std::string name;  // of a type
    int64_t steps = 0;
  };
  bool has_meaning(const std::string& name, const NameTable& names, int rank) const;

  clang::Sema& sema_;
  std::map<int64_t, std::vector<Type>> types_, pending_;  // by the cell's number
};

}  // namespace lockstep::compiler
