// Knows what the ranks have loaded already: the prelude and earlier cells. Its code is not generated again.
//
// Clang asks an external source whether a definition exists elsewhere; "always" makes it available_externally, and at
// -O0 its body, and all that only its body uses, is not generated.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"
#include "protocol/rank_set.h"

namespace lockstep::compiler {

class ResidentSymbols : public clang::ExternalSemaSource {
 public:
  explicit ResidentSymbols(clang::ASTContext& context);
  /// Puts itself before the precompiled header's reader. Called once, when Sema exists.
  void attach(clang::Sema& sema);

  /// Adds the dynamic symbols of the shared object `path`, which every rank has loaded. Throws StartError.
  void add_library(const std::string& path);
  /// Adds symbols that an object loaded on `ranks` defines.
  void add(const std::vector<std::string>& symbols, const RankSet& ranks);
  /// Notes that a new rank has loaded the objects that all of `like` have.
  void join(int rank, const RankSet& like) {
    for (RankSet& ranks : rank_sets_) ranks.join(rank, like);
  }
  /// From now on, definitions that all of `ranks` have are not generated again. With `inline_bodies`, inline functions
  /// are generated nevertheless, so that the optimizer sees them.
  void start_cell(const RankSet& ranks, bool inline_bodies);
  /// Is off while a cell is parsed: then no definition counts as loaded.
  void set_generating(bool generating) { generating_ = generating; }
  /// Is on while a code generator receives the declarations of earlier cells: no code is generated for them, whichever
  /// ranks have it. For those that the current cell uses, clang asks again.
  void set_catching_up(bool catching_up) { catching_up_ = catching_up; }

  /// Adds a variable at namespace scope of the current cell. Only the current cell's object defines it.
  void add_variable(const clang::VarDecl* variable) { variables_[variable->getCanonicalDecl()] = cell_; }

  /// Returns functions that were not generated since the last call because the ranks of the current cell have them from
  /// an earlier cell. Other ranks may lack them, and clang does not come back to them: they must be passed to it again.
  llvm::SmallVector<clang::FunctionDecl*, 0> take_not_made() { return not_made_.takeVector(); }

  /// Looks up names that clang finds nowhere else.
  std::function<bool(clang::LookupResult&, clang::Scope*)> last_resort;

  ExtKind hasExternalDefinitions(const clang::Decl* decl) override;
  bool LookupUnqualified(clang::LookupResult& result, clang::Scope* scope) override {
    return last_resort && last_resort(result, scope);
  }

 private:
  struct Symbol {
    std::vector<unsigned> owners;  // of rank_sets_
  };
  bool loaded(const Symbol& symbol) const;
  Symbol& symbol_of(clang::GlobalDecl decl);
  const std::vector<Symbol*>& symbols_of(const clang::FunctionDecl* function);

  clang::ASTContext& context_;
  std::unique_ptr<clang::MangleContext> mangler_;
  llvm::StringMap<Symbol> symbols_;
  llvm::DenseMap<const clang::Decl*, std::vector<Symbol*>> known_;
  llvm::DenseMap<const clang::Decl*, int64_t> variables_;
  std::vector<RankSet> rank_sets_;  // [0]: libraries, every rank
  std::vector<bool> covers_;  // does rank_sets_[i] contain all ranks of the current cell?
  RankSet ranks_;
  int64_t cell_ = 0;
  llvm::SetVector<clang::FunctionDecl*> not_made_;
  bool generating_ = false;
  bool catching_up_ = false;
  bool inline_bodies_ = false;
};

}  // namespace lockstep::compiler
