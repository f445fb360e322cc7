// How the worker provides what worker/process/host.h asks for.
#pragma once

namespace lockstep::worker {

class Outbox;

/// Values go there from now on. Once, at start.
void send_values_to(Outbox& outbox);

}  // namespace lockstep::worker
