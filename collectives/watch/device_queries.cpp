#include "collectives/watch/device_queries.h"

#include "collectives/log/device_progress.h"
#include "collectives/transport/device_plugin.h"
#include "collectives/watch/stream_mark.h"

namespace lockstep::dist {

void use_queries_of_plugin() {
  if (!libtorch_cuda_is_loaded() || !device_plugin().table) return;
  set_stream_capture_query(
      [](c10::Device device) { return device.is_cuda() && device_plugin().table->captures(device.index()); });
  set_device_query_guard([](const std::function<void()>& ask) {
    device_plugin().table->query([](void* argument) { (*static_cast<const std::function<void()>*>(argument))(); },
                                 const_cast<std::function<void()>*>(&ask));
  });
}

void query_devices(const std::function<void()>& ask) {
  use_queries_of_plugin();
  ask_devices(ask);
}

}  // namespace lockstep::dist
