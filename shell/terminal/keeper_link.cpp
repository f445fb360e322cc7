#include "shell/terminal/keeper_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "protocol/read_struct.h"
#include "shell/detached/session_socket.h"
#include "shell/terminal/shown_journal.h"

namespace lockstep::shell {
namespace {

constexpr size_t kMostLinesAgain = 1000;

}  // namespace

KeeperLink::KeeperLink(Descriptor keeper, Session& session, Listener listener)
    : keeper_(std::move(keeper)), session_(session), listener_(std::move(listener)) {
  send_json(keeper_.get(), Mail::opened, OpenedSession{session_.id()});
  session_.loop().watch(keeper_.get(), [this] {
    for (;;) {
      Received mail = receive_mail(keeper_.get());
      if (mail.found == Reading::end || mail.found == Reading::failed) session_.loop().forget(keeper_.get());
      if (mail.found != Reading::bytes) return;  // its end is that of the terminal, too: SIGHUP
      take(std::move(mail));
    }
  });
}

KeeperLink::~KeeperLink() { session_.loop().forget(keeper_.get()); }

void KeeperLink::detach(std::optional<int64_t> seconds) const {
  if (!alone_.empty()) throw UsageError("%detach would end this session: " + alone_);
  send_json(keeper_.get(), Mail::detach, DetachTerminal{seconds});
}

void KeeperLink::detach_now() const {
  try {
    detach(std::nullopt);
  } catch (const UsageError& error) {
    listener_.watched(error.what());
  }
}

void KeeperLink::take(Received mail) {
  if (mail.kind == Mail::lost && !unseen_since_) unseen_since_ = session_.journal().last_input();
  if (mail.kind == Mail::lost) listener_.lost();
  if (mail.kind == Mail::alone) alone_ = mail.body;
  if (mail.kind == Mail::watched || mail.kind == Mail::alone) listener_.watched(mail.body);
  if (mail.kind == Mail::over) listener_.over(mail.body);
  if (mail.kind == Mail::attached)
    if (const auto terminal = protocol::read_struct<NewTerminal>(mail.body))
      listener_.attached(*terminal, std::move(mail.descriptor));
}

std::string KeeperLink::unseen(const NewTerminal& terminal, const Screen& screen) {
  const uint64_t last = session_.journal().last_input();
  const uint64_t first = std::max<uint64_t>(1, std::exchange(unseen_since_, std::nullopt).value_or(last));
  std::string text;
  if (terminal.since > 0)
    text =
        paint(screen, Style::dim,
              fmt::format("{} {}, detached since {}", signs(screen).note, session_.id(), clock_text(terminal.since))) +
        "\n";
  if (last > 0)
    text += journal_end(session_.journal().path(), session_.id(), first, last, screen, kMostLinesAgain);
  else if (session_.next_cell() > 1)
    text += std::string(signs(screen).note) + " there is no journal: what has come meanwhile is not shown\n";
  return text;
}

}  // namespace lockstep::shell
