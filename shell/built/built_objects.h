// Gives a session its objects out of a built file: no compiler runs.
#pragma once
#include <memory>
#include <string>

#include "shell/built/built_views.h"
#include "shell/processes/object_source.h"

namespace lockstep::shell {

class BuiltObjects : public ObjectSource {
 public:
  /// `name` is that of the file, for messages. `session`: see BuiltViews.
  BuiltObjects(std::shared_ptr<const BuiltFile> file, std::string name, size_t session, const CompilerOptions& options);

  /// Writes the prelude into the session's folder. Throws StartError.
  const protocol::CompilerReady& wait_ready() override;
  /// A cell for whose views the file has no objects does not compile: the diagnostics say what differs, and what to do.
  FromCompiler ask(const protocol::CompilerRequest& request) override;
  void settle(const protocol::Settle& settle) override { views_.settle(settle); }
  int64_t definitions() const override { return definitions_; }
  void cancel() override {}

 private:
  FromCompiler compile(const protocol::Compile& request);

  std::shared_ptr<const BuiltFile> file_;
  std::string name_;
  std::string directory_;  // the session's
  BuiltViews views_;
  protocol::CompilerReady ready_;
  int64_t definitions_ = 0;
};

/// Adds the bytes of the objects, in the order that CompiledObject::frame then has.
FromCompiler with_frames(protocol::Compiled compiled, const BuiltFile& file);

}  // namespace lockstep::shell
