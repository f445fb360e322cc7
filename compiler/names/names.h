// Knows the names that cells have defined, which rank sees which definition, and which of them clang currently finds.
//
// All definitions stay in clang's tree, since older code refers to them. Later cells find a definition while it is
// exposed, that is, while it is in clang's lookup tables. Hiding it does not change code that refers to it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"
#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

struct Definition {
  std::string name;  // "x", "outer::f"
  std::string kind;  // as protocol::Name::kind
  clang::NamedDecl* decl = nullptr;  // nullptr: a macro
  int64_t cell = 0;
  int64_t number = 0;  // the cell's number for people
  int64_t steps_needed = 0;  // a rank has it when it has done this many steps of the cell
  RankSet ranks;  // that have it
  bool everywhere = false;  // it is the header's: every rank has it
  bool exposed = true;
  bool forgotten = false;
  bool found_last = false;  // a variable of Lockstep's: see NameTable::find_last()
};

/// A `using namespace` of a cell.
struct UsedNamespace {
  clang::NamespaceDecl* space = nullptr;
  int64_t cell = 0;
  RankSet ranks;
};

class NameTable {
 public:
  explicit NameTable(clang::Sema& sema) : sema_(sema) {}

  /// Hides `decl` for a new definition of `name` in the current cell: lookups no longer find it. Code that refers to it
  /// is not affected.
  void hide(const std::string& name, clang::NamedDecl* decl);

  /// Makes clang find what rank `rank` sees.
  void show_view(int rank);
  /// Groups `ranks` by the definitions that they see of the `mentioned` names and of all operators.
  std::vector<RankSet> group(const RankSet& ranks, const std::set<std::string>& mentioned) const;

  /// Adds a definition of the current cell. It replaces earlier definitions of that name, except functions with other
  /// parameters, which it overloads.
  void define(Definition definition);
  void use_namespace(UsedNamespace used) { used_.push_back(used); }
  const std::vector<UsedNamespace>& used_namespaces() const { return used_; }

  /// Makes lookups in scopes no longer find the header's variable `value`: a namespace that cells use has a function of
  /// its name. value_found_last() still finds it.
  void find_last(clang::VarDecl* value);
  clang::NamedDecl* value_found_last(const std::string& name, int rank) const;

  /// Ends the cell. `steps_done` maps a rank to the number of steps that it has done.
  void settle(int64_t cell, const std::map<int, int64_t>& steps_done);
  /// Hides these names from later cells; an empty list stands for all names.
  void forget(const std::vector<std::string>& names);

  /// Hides from `rank` these names of cells, with what they replaced there.
  void lose(int rank, const std::map<int64_t, std::vector<std::string>>& names);
  /// From now on a new rank sees what all of `like` see.
  void join(int rank, const RankSet& like);

  /// Does the same for what the user's headers at these paths have declared.
  void forget_headers(const std::set<std::string>& paths);

  /// Hides what these cells have defined. What it replaced is visible again.
  void undo(const std::set<int64_t>& cells);

  bool sees(const Definition& definition, int rank) const;
  const std::vector<Definition>& all() const { return definitions_; }
  std::vector<const Definition*> find(const std::string& name) const;
  /// Returns the newest definition of the entity `decl`.
  const Definition* of(const clang::NamedDecl* decl) const;
  std::vector<protocol::Name> list(const clang::PrintingPolicy& policy) const;

  /// Keeps the parameters of a cell's function as they were spelled.
  void remember_parameters(const clang::NamedDecl* function, std::string spelled) {
    parameters_[function] = std::move(spelled);
  }
  const std::string& parameters_of(const clang::NamedDecl* function) const;

  /// Returns the declarations of cells at a location (its raw encoding) that clang currently finds, with their names.
  std::vector<std::pair<std::string, clang::NamedDecl*>> at_place(unsigned place) const;
  /// Returns the namespace `name` on `rank`, if a value of the same name hides it, else nullptr: C++ ignores values
  /// before `::`, so `int dist = 5;` does not change `dist::barrier()`.
  clang::NamedDecl* hidden_namespace(const std::string& name, int rank) const;
  /// Returns what clang currently finds for the name. `path` is of the form "outer::inner".
  std::vector<clang::NamedDecl*> lookup(const std::string& path, const std::string& name) const;

 private:
  void forget_if(const std::function<bool(const Definition&)>& is_meant);
  void show(Definition& definition, int rank, std::set<const clang::Decl*>& gone);
  void take_out(clang::NamedDecl* decl);
  void take_out_one(clang::NamedDecl* decl);
  bool is_found(clang::NamedDecl* decl) const;
  void put_back(clang::NamedDecl* decl);
  bool replaces(const Definition& later, const Definition& earlier) const;
  /// Whether a later definition replaces this one, of which `is_so` holds. The newest is asked first.
  bool is_replaced(size_t index, const std::function<bool(const Definition&)>& is_so) const;

  clang::Sema& sema_;
  std::vector<Definition> definitions_;
  std::map<std::string, std::vector<size_t>> by_name_;
  std::map<std::string, std::vector<size_t>> by_last_name_;  // "f" of "outer::f"; "operator" for all operators
  std::optional<int> shown_rank_;  // whose view clang has
  std::vector<size_t> changed_;  // definitions that may be seen differently since then
  std::vector<UsedNamespace> used_;
  std::map<const clang::NamedDecl*, size_t> by_decl_;
  std::map<const clang::NamedDecl*, std::string> parameters_;
};

}  // namespace lockstep::compiler
