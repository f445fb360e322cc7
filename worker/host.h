// Provides what worker/process/host.h asks for, in the worker.
#pragma once

namespace lockstep::worker {

class Outbox;

/// Sends values there from now on. Called once, at start.
void send_values_to(Outbox& outbox);

}  // namespace lockstep::worker
