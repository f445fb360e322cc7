// The keeper of a detachable session (shell/detached/keeper.h), as the session's terminal sees it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "protocol/descriptor.h"
#include "shell/detached/messages.h"
#include "shell/session/session.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

class KeeperLink {
 public:
  /// They are called while the session serves its ranks.
  struct Listener {
    std::function<void(const NewTerminal&, Descriptor notebook)> attached;  // has seen nothing, or not all
    std::function<void()> lost;  // who typed, or the notebook, is gone
    std::function<void(const std::string& text)> watched, over;
  };
  /// Tells the keeper the session's id: terminals can come from then on. `session` outlives the link.
  KeeperLink(Descriptor keeper, Session& session, Listener listener);
  ~KeeperLink();
  KeeperLink(const KeeperLink&) = delete;
  KeeperLink& operator=(const KeeperLink&) = delete;

  /// Lets go of the terminal; the session waits so many seconds, or as it was started with. Throws UsageError where no
  /// terminal could come back.
  void detach(std::optional<int64_t> seconds) const;
  /// Does the same while a cell runs. Says where no terminal could come back.
  void detach_now() const;

  /// Returns what a terminal that comes has not seen: all since the cell that was the last when the one before it was
  /// lost.
  std::string unseen(const NewTerminal& terminal, const Screen& screen);

 private:
  void take(Received mail);

  const Descriptor keeper_;
  Session& session_;
  const Listener listener_;
  std::string alone_;  // why no other terminal can come; empty: one can
  std::optional<uint64_t> unseen_since_;  // the record of the journal from which on somebody may have seen nothing
};

}  // namespace lockstep::shell
