// Compiles C++ cells at a prompt over a Python job. The compiler starts with the first such cell: it needs the torch of
// the job, which the ranks know, and its precompiled header may have to be built.
#pragma once
#include <memory>

#include "shell/processes/object_source.h"

namespace lockstep::shell {

class JobObjects : public ObjectSource {
 public:
  bool has_compiler() const { return compiler_ != nullptr; }
  /// Uses this compiler from here on.
  void use(std::unique_ptr<ObjectSource> compiler) { compiler_ = std::move(compiler); }
  void forget_compiler() { compiler_.reset(); }

  const protocol::CompilerReady& wait_ready() override;
  /// Without a compiler nothing has been defined. A compiler that can't be started again costs the cell, not the prompt.
  FromCompiler ask(const protocol::CompilerRequest& request) override;
  void settle(const protocol::Settle& settle) override;
  int64_t definitions() const override { return compiler_ ? compiler_->definitions() : 0; }
  void cancel() override;

 private:
  std::unique_ptr<ObjectSource> compiler_;
  protocol::CompilerReady ready_;  // without a compiler
};

}  // namespace lockstep::shell
