#include "compiler/parser/poll_insertion.h"

#include <clang/AST/RecursiveASTVisitor.h>
#include <clang/Basic/Builtins.h>

namespace lockstep::compiler {

using namespace clang;

namespace {

class PollInserter : public RecursiveASTVisitor<PollInserter> {
 public:
  PollInserter(Sema& sema, const OwnNames& own)
      : sema_(sema), context_(sema.Context), flag_(own.poll_requested), poll_(own.poll) {}

  bool ready() const { return flag_ && poll_; }
  bool shouldVisitTemplateInstantiations() const { return false; }  // each has an event

  bool TraverseDecl(Decl* decl) {
    if (!decl) return true;
    if (auto* function = llvm::dyn_cast<FunctionDecl>(decl)) {
      if (function->isDependentContext()) return true;
      return with_allowed(may_throw(function), [&] { return RecursiveASTVisitor::TraverseDecl(decl); });
    }
    return RecursiveASTVisitor::TraverseDecl(decl);
  }

  bool TraverseLambdaExpr(LambdaExpr* lambda) {
    if (lambda->getCallOperator()->isDependentContext()) return true;
    const bool allowed = allowed_ && may_throw(lambda->getCallOperator());
    return with_allowed(allowed, [&] { return RecursiveASTVisitor::TraverseLambdaExpr(lambda); });
  }

  /// An exception must not leave the body of an OpenMP region, which may run on another thread.
  bool TraverseCapturedStmt(CapturedStmt* region) {
    return with_allowed(false, [&] { return RecursiveASTVisitor::TraverseCapturedStmt(region); });
  }

  bool VisitForStmt(ForStmt* loop) { return extend(loop); }
  bool VisitWhileStmt(WhileStmt* loop) { return extend(loop); }
  bool VisitDoStmt(DoStmt* loop) { return extend(loop); }
  bool VisitCXXForRangeStmt(CXXForRangeStmt* loop) { return extend(loop); }

  /// Replaces each backward `goto` in the statement by a block with the test and the `goto`.
  bool VisitStmt(Stmt* parent) {
    if (!allowed_) return true;
    for (Stmt*& child : parent->children()) {
      if (!child || !goes_back(child) || !done_.insert(child).second) continue;
      const SourceLocation place = child->getBeginLoc();
      Stmt* statements[] = {poll_test(place), child};
      child = CompoundStmt::Create(context_, statements, FPOptionsOverride(), place, child->getEndLoc());
    }
    return true;
  }

 private:
  template <typename Action>
  bool with_allowed(bool allowed, Action action) {
    const bool before = std::exchange(allowed_, allowed);
    const bool go_on = action();
    allowed_ = before;
    return go_on;
  }

  static bool may_throw(const FunctionDecl* function) {
    if (llvm::isa<CXXDestructorDecl>(function) || function->isConsteval()) return false;
    const auto* type = function->getType()->getAs<FunctionProtoType>();
    return type && !isUnresolvedExceptionSpec(type->getExceptionSpecType()) && !type->isNothrow();
  }

  /// Whether this is a jump to a label before it, or to one that is known at run time only.
  bool goes_back(const Stmt* statement) const {
    if (llvm::isa<IndirectGotoStmt>(statement)) return true;
    const auto* jump = llvm::dyn_cast<GotoStmt>(statement);
    if (!jump || !jump->getLabel()->getStmt()) return false;
    return sema_.getSourceManager().isBeforeInTranslationUnit(jump->getLabel()->getStmt()->getIdentLoc(),
                                                              jump->getGotoLoc());
  }

  template <typename Loop>
  bool extend(Loop* loop) {
    Stmt* body = loop->getBody();
    if (!allowed_ || !body) return true;
    Stmt* statements[] = {poll_test(body->getBeginLoc()), body};
    loop->setBody(
        CompoundStmt::Create(context_, statements, FPOptionsOverride(), body->getBeginLoc(), body->getEndLoc()));
    return true;
  }

  /// if (!__builtin_is_constant_evaluated() && __atomic_load_n(&lockstep_poll_requested, relaxed)) lockstep_poll();
  Stmt* poll_test(SourceLocation place) {
    const FPOptionsOverride no_options;
    auto* flag = DeclRefExpr::Create(context_, NestedNameSpecifierLoc(), SourceLocation(), flag_, false, place,
                                     flag_->getType(), VK_LValue);
    auto* address = UnaryOperator::Create(context_, flag, UO_AddrOf, context_.getPointerType(flag_->getType()),
                                          VK_PRValue, OK_Ordinary, place, false, no_options);
    auto* relaxed =
        IntegerLiteral::Create(context_, llvm::APInt(context_.getIntWidth(context_.IntTy), 0), context_.IntTy, place);
    Expr* operands[] = {address, relaxed};
    auto* load = new (context_)
        AtomicExpr(place, operands, flag_->getType().getUnqualifiedType(), AtomicExpr::AO__atomic_load_n, place);
    auto* is_set = ImplicitCastExpr::Create(context_, context_.BoolTy, CK_IntegralToBoolean, load, nullptr, VK_PRValue,
                                            no_options);
    Expr* at_compile_time = sema_.BuildBuiltinCallExpr(place, Builtin::BI__builtin_is_constant_evaluated, {});
    auto* at_run_time = UnaryOperator::Create(context_, at_compile_time, UO_LNot, context_.BoolTy, VK_PRValue,
                                              OK_Ordinary, place, false, no_options);
    auto* condition = BinaryOperator::Create(context_, at_run_time, is_set, BO_LAnd, context_.BoolTy, VK_PRValue,
                                             OK_Ordinary, place, no_options);
    auto* name = DeclRefExpr::Create(context_, NestedNameSpecifierLoc(), SourceLocation(), poll_, false, place,
                                     poll_->getType(), VK_LValue);
    auto* function = ImplicitCastExpr::Create(context_, context_.getPointerType(poll_->getType()),
                                              CK_FunctionToPointerDecay, name, nullptr, VK_PRValue, no_options);
    auto* call = CallExpr::Create(context_, function, {}, context_.VoidTy, VK_PRValue, place, no_options);
    return IfStmt::Create(context_, place, IfStatementKind::Ordinary, nullptr, nullptr, condition, place, place, call);
  }

  Sema& sema_;
  ASTContext& context_;
  VarDecl* flag_;
  FunctionDecl* poll_;
  std::set<const Stmt*> done_;  // jumps that have a test
  bool allowed_ = true;
};

}  // namespace

void insert_polls(const ReadCell& cell, Sema& sema, const OwnNames& own) {
  PollInserter inserter(sema, own);
  if (!inserter.ready()) return;
  const auto& sources = sema.getSourceManager();
  std::set<Decl*> done;
  const auto visit = [&](const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (event.kind != Event::top_level) continue;
      auto* decl = static_cast<Decl*>(event.decl);
      const SourceLocation place = sources.getExpansionLoc(decl->getLocation());
      if (sources.isLoadedSourceLocation(place) || sources.isInSystemHeader(place)) continue;
      if (done.insert(decl).second) inserter.TraverseDecl(decl);
    }
  };
  for (const Item& item : cell.items) visit(item.events);
  visit(cell.tail);
}

}  // namespace lockstep::compiler
