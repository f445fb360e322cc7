#include "ddp/hooks/default_group.h"

#include "collectives/dist.h"
#include "protocol/error.h"

namespace lockstep::ddp {

c10::intrusive_ptr<c10d::ProcessGroup> default_group() {
  if (!dist::is_initialized()) {
    throw Error(
        "there is no default process group: call lockstep::dist::init_process_group() first, or name a group "
        "(Options().process_group(group))");
  }
  return dist::default_group();
}

}  // namespace lockstep::ddp
