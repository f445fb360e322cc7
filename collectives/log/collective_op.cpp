#include "collectives/log/collective_op.h"

#include <iterator>

namespace lockstep::dist {

namespace {
constexpr const char* kOps[] = {
#define LOCKSTEP_NAME(name) #name,
    LOCKSTEP_COLLECTIVE_OPS(LOCKSTEP_NAME)
#undef LOCKSTEP_NAME
};

// Has the order of c10::ScalarType (a test compares the two).
constexpr const char* kDtypes[] = {"uint8",           "int8",
                                   "int16",           "int32",
                                   "int64",           "float16",
                                   "float32",         "float64",
                                   "complex32",       "complex64",
                                   "complex128",      "bool",
                                   "qint8",           "quint8",
                                   "qint32",          "bfloat16",
                                   "quint4x2",        "quint2x4",
                                   "bits1x8",         "bits2x4",
                                   "bits4x2",         "bits8",
                                   "bits16",          "float8_e5m2",
                                   "float8_e4m3fn",   "float8_e5m2fnuz",
                                   "float8_e4m3fnuz", "uint16",
                                   "uint32",          "uint64"};

constexpr const char* kReduceOps[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
}  // namespace

const char* op_name(CollectiveOp op) {
  const auto index = static_cast<size_t>(op);
  return index < std::size(kOps) ? kOps[index] : "unknown";
}

const char* dtype_name(uint8_t scalar_type) {
  if (scalar_type == 255) return "";
  return scalar_type < std::size(kDtypes) ? kDtypes[scalar_type] : "other";
}

const char* reduce_op_name(uint8_t reduce_op) { return reduce_op < std::size(kReduceOps) ? kReduceOps[reduce_op] : ""; }

}  // namespace lockstep::dist
