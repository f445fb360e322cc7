// What verify says about a difference beyond the fact: the likely cause, and which ranks agree; and what an ok leaves out.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "inspectors/verify/verify.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Verify, SwappedParametersAndPermutedElementsAreTold) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> state;
    torch::Tensor a = torch::full({16}, 1.0), b = torch::full({16}, 2.0);
    state.insert("a", rank == 1 ? b : a);
    state.insert("b", rank == 1 ? a : b);
    const Finding swapped = only_finding(verify(state, verify_options()));
    EXPECT_THAT(swapped.message, HasSubstr("`a` and `b` seem to be swapped"));
    torch::Tensor permuted = torch::arange(16.0);
    if (rank == 2) permuted = permuted.flip(0);
    EXPECT_THAT(verify(permuted, verify_options()).findings[0].message,
                HasSubstr("the same elements in another order"));
  });
}

TEST(Verify, OneLineSaysThatEverythingDiffers) {
  spawn_ranks(2, [](int rank, int) {
    const Finding finding = only_finding(verify(equal_net(rank * 10.0), verify_options()));
    EXPECT_THAT(finding.message, HasSubstr("in all 6 parameters"));
    EXPECT_THAT(finding.message, HasSubstr("seeds"));
  });
}

TEST(Verify, RanksThatAgreeAreShownAsClasses) {
  spawn_ranks(5, [](int rank, int) {
    const auto message = [&](double value) {
      return only_finding(verify(torch::full({4}, value), verify_options())).message;
    };
    const std::vector<double> pairs = {1, 1, 2, 2, 3}, minority = {1, 1, 1, 2, 2}, all = {1, 2, 3, 4, 5};
    const auto place = static_cast<size_t>(rank);
    EXPECT_THAT(message(pairs[place]),
                HasSubstr("ranks 0-1 agree, ranks 2-3 agree, rank 4 agrees with none, and they differ"));
    EXPECT_THAT(message(minority[place]), HasSubstr("ranks 3-4 differ from ranks 0-2"));
    EXPECT_THAT(message(minority[place]), HasSubstr("among them ranks 3-4 agree"));
    EXPECT_THAT(message(all[place]), ::testing::Not(HasSubstr("agree")));
    for (const Method method : {Method::kBroadcast, Method::kAllGather})
      EXPECT_THAT(only_finding(verify(torch::full({4}, pairs[place]), verify_options().method(method))).message,
                  HasSubstr("ranks 2-3 agree"));
    EXPECT_THAT(only_finding(verify(pairs[place], verify_options())).message,
                HasSubstr("1 on ranks 0-1, 2 on ranks 2-3"));
  });
}

TEST(Verify, ReplicasThatWereTrainedInGroupsAreToldSo) {
  spawn_ranks(4, [](int rank, int) {
    torch::nn::Module module;
    for (int i = 0; i < 3; ++i)
      module.register_parameter("p" + std::to_string(i), (torch::arange(500.0) * 1.7 + i).sin() + 0.01 * (rank / 2));
    EXPECT_THAT(only_finding(verify(module, verify_options())).message,
                HasSubstr("trained separately: are gradients reduced over a sub-group?"));
  });
}

TEST(Verify, TheLikelyCauseOfADifferenceEverywhere) {
  spawn_ranks(3, [](int rank, int) {
    const auto made = [](int seed, double drift) {
      std::vector<torch::Tensor> tensors;
      for (int i = 0; i < 3; ++i)
        tensors.push_back((torch::arange(500.0) * (1.7 + seed) + i).sin() +
                          (torch::arange(500.0) + drift).cos() * drift);
      torch::nn::Module module;
      for (int i = 0; i < 3; ++i) module.register_parameter("p" + std::to_string(i), tensors[static_cast<size_t>(i)]);
      return verify(module, verify_options()).findings.at(0).message;
    };
    EXPECT_THAT(made(rank, 0), HasSubstr("initialised from different seeds?"));
    EXPECT_THAT(made(rank == 1, 0), HasSubstr("loaded on some ranks only"));
    EXPECT_THAT(made(0, 0.01 * rank), HasSubstr("trained separately"));
  });
}

/// Two layers with LayerNorm: weights by `seed`, the rest as it is initialised, and `drift` on everything.
struct Layers : torch::nn::Module {
  Layers(int seed, double drift) {
    for (int i = 0; i < 2; ++i) {
      const std::string name = "layer" + std::to_string(i);
      const auto noise = [&](int64_t size) { return (torch::arange(size) * (1.3 + i + 7.1 * drift)).cos() * drift; };
      register_parameter(name + "_weight", (torch::arange(500.0) * (1.7 + seed) + i).sin() + noise(500));
      register_parameter(name + "_bias", torch::zeros({20}) + noise(20));
      register_parameter(name + "_norm", torch::ones({20}) + noise(20));
    }
  }
};

TEST(Verify, ParametersThatBeginConstantSayNothingAboutTheCause) {
  spawn_ranks(3, [](int rank, int) {
    const auto message = [](int seed, double drift) {
      const auto layers = std::make_shared<Layers>(seed, drift);
      return verify(*layers, verify_options()).findings.at(0).message;
    };
    EXPECT_THAT(message(rank, 0), HasSubstr("differ in 2 of 6 parameters, all that are not constant: unrelated to one "
                                            "another: initialised from different seeds?"));
    EXPECT_THAT(message(rank == 1, 0), HasSubstr("a checkpoint loaded on some ranks only"));
    EXPECT_THAT(message(0, 0.003 * (rank + 1)), HasSubstr("in all 6 parameters: close to one another"));
    torch::nn::Module norms;  // biases that began as zeros are unrelated after some steps
    for (int i = 0; i < 3; ++i)
      norms.register_parameter("bias" + std::to_string(i), (torch::arange(20.0) * (1.3 + i + rank)).cos() * 0.003);
    norms.register_parameter("weight", torch::ones({20}) + (torch::arange(20.0) * (1.3 + rank)).cos() * 0.003);
    EXPECT_THAT(verify(norms, verify_options()).findings.at(0).message, HasSubstr("close to one another"));
  });
}

TEST(Verify, EveryOkSaysWhatItHasNotChecked) {
  spawn_ranks(2, [](int, int) {
    const auto net = equal_net();
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1));
    const auto message = [](const auto& object, VerifyOptions options) {
      return only_finding(verify(object, options)).message;
    };
    EXPECT_THAT(message(net, verify_options()), HasSubstr("; not checked: gradients, members that are not registered"));
    EXPECT_THAT(message(adam, verify_options()), HasSubstr("; not checked: the parameters themselves"));
    EXPECT_THAT(message(torch::ones({2}), verify_options()), HasSubstr("; not checked: strides"));
    EXPECT_THAT(message(rng(), verify_options()), HasSubstr("; not checked: generators of the program's own"));
    EXPECT_THAT(message(torch::ones({2}), verify_options().method(Method::kAllGather)), HasSubstr("within rtol 1e-05"));
    EXPECT_THAT(message(3, verify_options()), ::testing::Not(HasSubstr("not checked")));
  });
}

}  // namespace
}  // namespace lockstep::inspect
