// The operations that the collective log knows, by the names that dist:: gives them.
#pragma once
#include <cstdint>

namespace lockstep::dist {

/// Lists every operation once, by its name in dist::. New ones go to the end.
#define LOCKSTEP_COLLECTIVE_OPS(OP)    \
  OP(all_reduce)                       \
  OP(broadcast)                        \
  OP(reduce)                           \
  OP(all_gather)                       \
  OP(all_gather_into_tensor)           \
  OP(reduce_scatter)                   \
  OP(reduce_scatter_tensor)            \
  OP(gather)                           \
  OP(gather_into_tensor)               \
  OP(scatter)                          \
  OP(all_to_all)                       \
  OP(all_to_all_single)                \
  OP(barrier)                          \
  OP(monitored_barrier)                \
  OP(new_group)                        \
  OP(send)                             \
  OP(recv)                             \
  OP(all_reduce_coalesced)             \
  OP(all_gather_coalesced)             \
  OP(all_gather_into_tensor_coalesced) \
  OP(reduce_scatter_tensor_coalesced)  \
  OP(all_reduce_sparse)                \
  OP(coalesced)                        \
  OP(all_gather_object)                \
  OP(gather_object)                    \
  OP(broadcast_object_list)            \
  OP(scatter_object_list)              \
  OP(send_object_list)                 \
  OP(recv_object_list)

enum class CollectiveOp : uint8_t {
#define LOCKSTEP_ENUMERATOR(name) name,
  LOCKSTEP_COLLECTIVE_OPS(LOCKSTEP_ENUMERATOR)
#undef LOCKSTEP_ENUMERATOR
};

const char* op_name(CollectiveOp op);
/// Returns "float32" for the value of c10::ScalarType, and "" for 255.
const char* dtype_name(uint8_t scalar_type);
/// Returns "SUM" for the value of c10d::ReduceOp::RedOpType, and "" for 255.
const char* reduce_op_name(uint8_t reduce_op);

}  // namespace lockstep::dist
