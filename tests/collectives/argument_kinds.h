// Every kind of tensor as an argument of a collective: it either works or is an ArgumentError on the rank that gave it,
// and the group lives.
#pragma once
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/dist.h"
#include "collectives/transport/libtorch_version.h"
#include "tests/collectives/tensors.h"

namespace lockstep::argument_kinds {

/// A kind of tensor, and what collectives make of it.
struct Kind {
  const char* name;
  std::function<at::Tensor()> make;
  bool refused = false;  // by every collective that takes dense tensors
  bool read_only = false;  // can be given, but not written to
};

inline at::Tensor values() { return at::arange(1, 7, at::kFloat).view({2, 3}); }

inline std::vector<Kind> kinds() {
  return {
      {"contiguous", [] { return values(); }},
      {"0-d", [] { return at::scalar_tensor(3.0); }},
      {"empty", [] { return at::empty({0}); }},
      {"no rows", [] { return at::empty({0, 3}); }},
      {"no columns", [] { return at::empty({3, 0}); }},
      {"transposed", [] { return values().t(); }},
      {"every other", [] { return at::arange(24, at::kFloat).view({4, 6}).slice(1, 0, 6, 2); }},
      {"channels last", [] { return at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast); }},
      {"ten dimensions", [] { return at::ones({1, 2, 1, 2, 1, 2, 1, 2, 1, 2}); }},
      {"one element in several places", [] { return at::ones({1, 3}).expand({4, 3}); }, false, true},
      {"int16", [] { return values().to(at::kShort); }},
      {"uint16", [] { return values().to(at::kUInt16); }},
      {"uint64", [] { return values().to(at::kUInt64); }},
      {"uint8", [] { return values().to(at::kByte); }},
      {"int64", [] { return values().to(at::kLong); }},
      {"bool", [] { return values() > 2; }},
      {"half", [] { return values().to(at::kHalf); }},
      {"bfloat16", [] { return values().to(at::kBFloat16); }},
      {"float8", [] { return values().to(at::kFloat8_e4m3fn); }},
      {"0-d int16", [] { return at::tensor(int16_t{3}, at::kShort).squeeze(); }},
      {"complex64", [] { return at::complex(values(), values()); }},
      {"complex128", [] { return at::complex(values(), values()).to(at::kComplexDouble); }},
      {"complex32", [] { return at::complex(values(), values()).to(at::kComplexHalf); }},
      {"0-d complex", [] { return at::complex(at::scalar_tensor(1.0), at::scalar_tensor(2.0)); }},
      {"conjugate view", [] { return at::complex(values(), values()).conj(); }, false, true},
      {"negative view", [] { return at::imag(at::complex(values(), values()).conj()); }, false, true},
      {"requires_grad", [] { return values().requires_grad_(); }},
      {"not a leaf", [] { return values().requires_grad_() * 2; }},
      {"inference",
       [] {
         const c10::InferenceMode mode;
         return values().clone();
       }},
#if LOCKSTEP_ATEN_HAS_NAMED_DIMENSIONS
      {"named",
       [] {
         const auto name = [](const char* text) { return at::Dimname::fromSymbol(at::Symbol::dimname(text)); };
         return values().rename(std::vector<at::Dimname>{name("N"), name("C")});
       },
       true},
#endif
      {"undefined", [] { return at::Tensor(); }, true},
      {"meta", [] { return at::empty({2, 3}, at::TensorOptions(at::kMeta)); }, true},
      {"quantized", [] { return at::quantize_per_tensor(values(), 0.1, 10, at::kQInt8); }, true},
      {"csr", [] { return values().to_sparse_csr(); }, true},
      {"nested", [] { return at::_nested_tensor_from_tensor_list({values(), values()}); }, true},
      {"zero tensor", [] { return at::_efficientzerotensor({2, 3}, at::TensorOptions(at::kFloat)); }, true},
      {"released storage",
       [] {
         at::Tensor tensor = values().clone();
         tensor.storage().unsafeGetStorageImpl()->set_nbytes(0);
         return tensor;
       },
       true},
  };
}

/// `count` tensors of the kind.
inline Tensors several(const Kind& kind, int count) {
  Tensors list;
  for (int i = 0; i < count; ++i) list.push_back(kind.make());
  return list;
}

/// A tensor of `times` the elements, of the kind's dtype; the kind itself where it has none to multiply.
inline at::Tensor stacked(const Kind& kind, int times) {
  const at::Tensor one = kind.make();
  if (kind.refused) return one;
  const at::NoGradGuard no_grad;
  return at::zeros({times * one.numel()}, one.options());
}

/// "ok", "ArgumentError", or what went wrong.
template <typename Call>
std::string outcome(Call&& call) {
  try {
    call();
  } catch (const dist::ArgumentError&) {
    return "ArgumentError";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "ok";
}

using NamedCalls = std::vector<std::pair<std::string, std::function<void()>>>;

/// Runs each call and then an all_reduce, which must work.
inline void run_all(const NamedCalls& calls, const Kind& kind, const std::string& op, int rank, int size) {
  for (const auto& [name, call] : calls) {
    // Ranks that only give it wait for the one that has to write to it.
    if (kind.read_only && (name.find("recv") != std::string::npos || name == "gather")) continue;
    const std::string result = outcome(call);
    EXPECT_TRUE(result == "ok" || result == "ArgumentError")
        << name << " " << op << " of " << kind.name << ": " << result;
    if (kind.refused) {
      const bool sends = name.find("send") != std::string::npos || name.find("recv") != std::string::npos;
      EXPECT_TRUE(result == "ArgumentError" || (sends && rank > 1)) << name << " of " << kind.name << ": " << result;
    }
    at::Tensor alive = at::ones({2});
    dist::all_reduce(alive);
    ASSERT_EQ(alive[0].item<float>(), size) << "after " << name << " of " << kind.name;
  }
}

}  // namespace lockstep::argument_kinds
