// The operations that the collective log knows, by the names that dist:: gives them.
#pragma once
#include <cstdint>

namespace lockstep::dist {

enum class CollectiveOp : uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  all_gather_into_tensor,
  reduce_scatter,
  reduce_scatter_tensor,
  gather,
  gather_into_tensor,
  scatter,
  all_to_all,
  all_to_all_single,
  barrier,
  monitored_barrier,
  new_group,
  send,
  recv,
  all_reduce_coalesced,
  all_gather_coalesced,
  all_gather_into_tensor_coalesced,
  reduce_scatter_tensor_coalesced,
  all_reduce_sparse,
  coalesced,
  all_gather_object,
  gather_object,
  broadcast_object_list,
  scatter_object_list,
  send_object_list,
  recv_object_list,
};

const char* op_name(CollectiveOp op);
/// "float32" for the value of c10::ScalarType; "" for 255.
const char* dtype_name(uint8_t scalar_type);
/// "SUM" for the value of c10d::ReduceOp::RedOpType; "" for 255.
const char* reduce_op_name(uint8_t reduce_op);

}  // namespace lockstep::dist
