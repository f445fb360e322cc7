// The names that cells have defined, which rank sees which definition, and which of them clang finds just now.
//
// All definitions stay in clang's tree for ever: older code refers to them. A definition is found by later cells while
// it is exposed: entered where clang looks names up. Hiding it leaves everything that refers to it as it is.
#pragma once
#include <cstdint>
#include <map>
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
  int64_t number = 0;      // the cell's number for people
  int64_t steps_needed = 0;  // it is there once so many steps of its cell were done
  RankSet ranks;           // that have it
  bool everywhere = false;  // the header's: every rank has it
  bool exposed = true;
  bool forgotten = false;
  std::vector<size_t> replaces;  // earlier definitions that ranks with this one don't see
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

  /// `decl` steps back for a new definition of `name` in the cell under way: it is not found any more. What refers to
  /// it is not affected.
  void hide(const std::string& name, clang::NamedDecl* decl);

  /// Makes clang see what rank `rank` sees. Definitions of cell `cell` (another version of it for other ranks, made in
  /// the same compilation) are hidden.
  void show_view(int rank);
  /// Ranks of `ranks` that see the same definitions of `mentioned` names, with operators always counted in.
  std::vector<RankSet> group(const RankSet& ranks, const std::set<std::string>& mentioned) const;

  /// A definition of the cell under way: later ones replace earlier ones of that name, except that functions with other
  /// parameters stand side by side.
  void define(Definition definition);
  void use_namespace(UsedNamespace used) { used_.push_back(used); }
  const std::vector<UsedNamespace>& used_namespaces() const { return used_; }

  /// The cell is over: rank → steps done.
  void settle(int64_t cell, const std::map<int, int64_t>& steps_done);
  /// Later cells don't see these names; with none, no name at all.
  void forget(const std::vector<std::string>& names);

  /// What these cells have defined steps back, and what it had replaced is seen again.
  void undo(const std::set<int64_t>& cells);

  bool sees(const Definition& definition, int rank) const;
  const std::vector<Definition>& all() const { return definitions_; }
  std::vector<const Definition*> find(const std::string& name) const;
  /// The newest definition that holds `decl`.
  const Definition* of(const clang::NamedDecl* decl) const;
  std::vector<protocol::Name> list(const clang::PrintingPolicy& policy) const;

  /// Parameters of a cell's function as they were spelled.
  void remember_parameters(const clang::NamedDecl* function, std::string spelled) {
    parameters_[function] = std::move(spelled);
  }
  const std::string& parameters_of(const clang::NamedDecl* function) const;

  /// What cells have declared at a place (its raw encoding) and is found just now, with its name.
  std::vector<std::pair<std::string, clang::NamedDecl*>> at_place(unsigned place) const;
  /// The namespace that `name` stands for on `rank`, if a value has taken the name over: before `::` C++ looks for no
  /// values, so `int dist = 5;` does not change `dist::barrier()`. nullptr where there is none.
  clang::NamedDecl* hidden_namespace(const std::string& name, int rank) const;
  /// What the name stands for just now; `path` as in "outer::inner".
  std::vector<clang::NamedDecl*> lookup(const std::string& path, const std::string& name) const;

 private:
  void take_out(clang::NamedDecl* decl);
  void take_out_one(clang::NamedDecl* decl);
  bool is_found(clang::NamedDecl* decl) const;
  void put_back(clang::NamedDecl* decl);
  bool replaces(const Definition& later, const Definition& earlier) const;
  bool replaced_on(size_t index, int rank) const;

  clang::Sema& sema_;
  std::vector<Definition> definitions_;
  std::map<std::string, std::vector<size_t>> by_name_;
  std::vector<std::vector<size_t>> replaced_by_;
  std::vector<UsedNamespace> used_;
  std::map<const clang::NamedDecl*, size_t> by_decl_;
  std::map<const clang::NamedDecl*, std::string> parameters_;
};

}  // namespace lockstep::compiler
