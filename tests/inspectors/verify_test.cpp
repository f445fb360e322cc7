// verify on ranks that are threads: what is equal, what is not, and who is at fault.
#include "inspectors/verify/verify.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "ddp/ddp.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/saved_state.h"
#include "tests/inspectors/replicas.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Verify, EqualReplicasAreOkByEveryMethod) {
  spawn_ranks(3, [](int, int) {
    const auto net = equal_net();
    for (const Method method : {Method::kFingerprint, Method::kBroadcast, Method::kAllGather}) {
      const Report report = verify(net, quickly().method(method));
      const Finding finding = only_finding(report);
      EXPECT_EQ(finding.verdict, "ok");
      EXPECT_EQ(finding.severity, Severity::note);
      EXPECT_EQ(finding.ranks, RankSet::all(3));
      EXPECT_EQ(report.tensors, 9);
      EXPECT_TRUE(report.ok());
    }
  });
}

TEST(Verify, NamesRankTensorElementsPlaceAndDistance) {
  spawn_ranks(4, [](int rank, int) {
    const auto net = equal_net();
    if (rank == 2)
      change(net->second->weight, [](torch::Tensor& weight) {
        weight[3][4] += 0.25;
        weight[5][0] -= 0.125;
        weight[7][15] += 0.0625;
      });
    for (const Method method : {Method::kFingerprint, Method::kBroadcast, Method::kAllGather}) {
      const Finding finding = only_finding(verify(net, quickly().method(method)));
      EXPECT_EQ(finding.severity, Severity::fault);
      EXPECT_EQ(finding.inspector, "verify");
      EXPECT_EQ(finding.verdict, "mismatch");
      EXPECT_EQ(finding.object, "net");
      EXPECT_EQ(finding.kind, "parameter");
      EXPECT_EQ(finding.ranks, RankSet{2});
      EXPECT_EQ(finding.reference_ranks, (RankSet{0, 1, 3}));
      ASSERT_EQ(finding.tensors.size(), 1U);
      EXPECT_EQ(finding.tensors[0].name, "second.weight");
      EXPECT_EQ(finding.tensors[0].dtype, "float32");
      EXPECT_THAT(finding.tensors[0].shape, ElementsAre(8, 16));
      EXPECT_EQ(finding.tensors[0].count, 3);
      EXPECT_THAT(finding.tensors[0].first, ElementsAre(3, 4));
      EXPECT_NEAR(*finding.tensors[0].max_abs_diff, 0.25, 1e-6);
      EXPECT_THAT(finding.message, HasSubstr("rank 2 differs from ranks 0-1,3 in 1 of 6 parameters"));
      EXPECT_THAT(finding.message, HasSubstr("ULP"));
    }
  });
}

TEST(Verify, OfTwoRanksNeitherIsRight) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor tensor = torch::full({10}, 1.0 + rank);
    const Finding finding = only_finding(verify(tensor, quickly()));
    EXPECT_EQ(finding.ranks, RankSet::all(2));
    EXPECT_TRUE(finding.reference_ranks.empty());
    EXPECT_EQ(finding.tensors[0].count, 10);
    EXPECT_EQ(finding.tensors[0].max_abs_diff, 1.0);
  });
}

TEST(Verify, ADifferenceLateInALargeTensorHasItsPlace) {
  spawn_ranks(2, [](int rank, int) {
    torch::Tensor tensor = torch::zeros({300, 1000});
    if (rank == 1) tensor[299][998] = 2.0;
    const Finding finding = only_finding(verify(tensor.t(), quickly()));
    EXPECT_THAT(finding.tensors[0].first, ElementsAre(998, 299));
    EXPECT_EQ(finding.tensors[0].count, 1);
  });
}

TEST(Verify, BeyondTheDetailBudgetOnlyThatItDiffersIsSaid) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor tensor = torch::full({100000}, 1.0 + rank);
    const Report report = verify(tensor, quickly().detail_bytes(kChunkBytes));
    EXPECT_EQ(report.findings[0].tensors[0].count, std::nullopt);
    EXPECT_THAT(report.findings[0].tensors[0].first, ElementsAre(0));
  });
}

TEST(Verify, StridesAreNoDifference) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor base = torch::arange(12.0).reshape({3, 4});
    EXPECT_TRUE(verify(rank == 0 ? base.contiguous() : base.t().contiguous().t(), quickly()).ok());
  });
}

TEST(Verify, SignsOfZeroAndPayloadsOfNanAreNotes) {
  spawn_ranks(2, [](int rank, int) {
    torch::Tensor tensor = torch::zeros({100});
    if (rank == 1) tensor[7] = -0.0F;
    tensor[9] = std::numeric_limits<float>::quiet_NaN();
    if (rank == 1) tensor.view(at::kInt)[9] = 0x7fc00001;
    const Report report = verify(tensor, quickly());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.severity, Severity::note);
    EXPECT_EQ(finding.verdict, "mismatch");
    EXPECT_EQ(finding.tensors[0].count, 2);
    EXPECT_THAT(finding.message, HasSubstr("signs of zeros"));
    EXPECT_TRUE(report.ok());
  });
}

TEST(Verify, NanAgainstANumberIsAFault) {
  spawn_ranks(2, [](int rank, int) {
    torch::Tensor tensor = torch::zeros({100});
    if (rank == 1) tensor[7] = std::numeric_limits<float>::quiet_NaN();
    const Report report = verify(tensor, quickly());
    EXPECT_FALSE(report.ok());
    EXPECT_THAT(report.findings[0].tensors[0].first, ElementsAre(7));
  });
}

TEST(Verify, AllGatherAgreesAboveItsToleranceOnly) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor tensor = torch::full({10}, 1.0 + rank * 1e-6);
    EXPECT_FALSE(verify(tensor, quickly()).ok());
    EXPECT_TRUE(verify(tensor, quickly().method(Method::kAllGather)).ok());
    EXPECT_FALSE(verify(tensor, quickly().method(Method::kAllGather).rtol(1e-8)).ok());
  });
}

TEST(Verify, SwappedParametersAndPermutedElementsAreTold) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> state;
    torch::Tensor a = torch::full({16}, 1.0), b = torch::full({16}, 2.0);
    state.insert("a", rank == 1 ? b : a);
    state.insert("b", rank == 1 ? a : b);
    const Finding swapped = only_finding(verify(state, quickly()));
    EXPECT_THAT(swapped.message, HasSubstr("looks like `a` and `b` are swapped"));
    torch::Tensor permuted = torch::arange(16.0);
    if (rank == 2) permuted = permuted.flip(0);
    EXPECT_THAT(verify(permuted, quickly()).findings[0].message, HasSubstr("the same elements in another order"));
  });
}

TEST(Verify, OneLineSaysThatEverythingDiffers) {
  spawn_ranks(2, [](int rank, int) {
    const Finding finding = only_finding(verify(equal_net(rank * 10.0), quickly()));
    EXPECT_THAT(finding.message, HasSubstr("in all 6 parameters"));
    EXPECT_THAT(finding.message, HasSubstr("seeds"));
  });
}

TEST(Verify, MissingReshapedAndFrozenParametersAreToldAndTheRestIsStillCompared) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> state;
    state.insert("a", torch::full({4}, rank == 2 ? 1.5 : 1.0));
    if (rank != 1) state.insert("b", torch::ones({4}));
    state.insert("c", torch::ones({rank == 1 ? 3 : 4}));
    state.insert("d", torch::ones({4}, rank == 0 ? at::kDouble : at::kFloat));
    state.insert("e", torch::ones({4}).requires_grad_(rank != 1));
    const Report report = verify(state, quickly());
    std::vector<std::string> seen;
    for (const Finding& each : report.findings) seen.push_back(each.verdict + " " + names(each).front());
    EXPECT_THAT(seen, ::testing::UnorderedElementsAre("missing b", "shape_mismatch c", "mismatch e", "dtype_mismatch d",
                                                      "mismatch a"))
        << report;
    for (const Finding& each : report.findings)
      if (each.verdict == "dtype_mismatch") EXPECT_EQ(each.ranks, RankSet{0});
  });
}

TEST(Verify, ATensorThatARankDoesNotHaveIsMissing) {
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor tensor = rank == 1 ? torch::Tensor() : torch::ones({2});
    const Report report = verify(tensor, quickly());
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].verdict, "missing");
    EXPECT_EQ(report.findings[0].ranks, RankSet{1});
    EXPECT_THAT(report.findings[0].message, HasSubstr("undefined on rank 1"));
  });
}

TEST(Verify, AnEmptyTensorIsOneAndASparseOneAnErrorThatSaysWhatToCompare) {
  spawn_ranks(2, [](int, int) {
    const Report report = verify(torch::empty({0, 4}), quickly());
    EXPECT_THAT(report.findings.at(0).message, HasSubstr("1 tensor, 0 B"));
    try {
      verify(torch::eye(3).to_sparse(), quickly());
      ADD_FAILURE() << "compared";
    } catch (const dist::ArgumentError& error) {
      EXPECT_THAT(error.what(), HasSubstr("compare values() and indices()"));
    }
  });
}

TEST(Verify, FunctionsAreNothingToLookInto) {
  const auto lambda = [] {};  // dereferencing it gives a function, and that as often as one likes
  static_assert(!detail::Pointer<decltype(lambda)> && !detail::LeadsToObject<decltype(lambda)>);
  static_assert(detail::Pointer<std::shared_ptr<int>> && detail::LeadsToObject<std::shared_ptr<int>>);
}

TEST(Verify, AnotherOrderOfParametersIsTold) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> state;
    for (const std::string& name : rank == 1 ? std::vector<std::string>{"b", "a"} : std::vector<std::string>{"a", "b"})
      state.insert(name, torch::ones({2}));
    const Finding finding = only_finding(verify(state, quickly()));
    EXPECT_EQ(finding.verdict, "order_mismatch");
    EXPECT_EQ(finding.ranks, RankSet{1});
  });
}

TEST(Verify, DifferentObjectsEndInAFindingAndTheNextCallIsRight) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    const Finding finding = only_finding(rank == 0 ? verify(net, "net") : verify(torch::ones({3}), "t"));
    EXPECT_EQ(finding.severity, Severity::fault);
    EXPECT_THAT(finding.message, HasSubstr("rank 1 for `t`, a tensor"));
    EXPECT_TRUE(verify(net, quickly()).ok());
  });
}

TEST(Verify, RanksThatDoNotCallAreNamedAndTheNextCallOfAllIsRight) {
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor tensor = torch::ones({3});
    if (rank != 1) {
      const Finding finding = only_finding(verify(tensor, quickly().deadline(std::chrono::milliseconds(200))));
      EXPECT_EQ(finding.verdict, "missing");
      EXPECT_EQ(finding.ranks, RankSet{1});
      EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
    }
    dist::barrier();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(verify(tensor, quickly()).ok());
    EXPECT_EQ(verify(torch::full({3}, rank), quickly()).findings[0].verdict, "mismatch");
  });
}

TEST(Verify, ARankAloneAndRanksChosen) {
  EXPECT_TRUE(verify(torch::ones({3})).ok());
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor tensor = torch::full({3}, rank == 2 ? 1.0 : 0.0);
    EXPECT_TRUE(verify(tensor, quickly().ranks(RankSet{0, 1})).ok());
    EXPECT_THROW(verify(tensor, quickly().ranks(RankSet{0, 7})), dist::ArgumentError);
  });
}

TEST(Verify, PlainValuesAndContainers) {
  spawn_ranks(2, [](int rank, int) {
    EXPECT_TRUE(verify(42, quickly()).ok());
    EXPECT_TRUE(verify(std::string("cosine"), quickly()).ok());
    EXPECT_TRUE(verify(std::vector<double>{1.0, std::nan("")}, quickly()).ok());
    EXPECT_FALSE(verify(std::vector<double>{1.0, rank ? std::nan("") : INFINITY}, quickly()).ok());
    const Report report = verify(0.1 + rank, VerifyOptions().name("lr"));
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.findings[0].kind, "value");
    EXPECT_THAT(report.findings[0].message, HasSubstr("0.1 on rank 0, 1.1 on rank 1"));
    const std::map<std::string, std::vector<torch::Tensor>> nested = {
        {"x", {torch::ones({2}), torch::full({2}, rank)}}};
    EXPECT_EQ(verify(nested, quickly()).findings[0].tensors[0].name, "x[1]");
    EXPECT_FALSE(verify(std::pair(1, rank), quickly()).ok());
    EXPECT_FALSE(verify(std::optional<torch::Tensor>(torch::full({1}, rank)), quickly()).ok());
  });
}

TEST(Verify, OptimizersStateStepsAndHyperParameters) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1));
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    adam.step();
    const Report equal = verify(adam, VerifyOptions().name("adam"));
    EXPECT_TRUE(equal.ok()) << equal;
    EXPECT_GT(equal.tensors, 18);
    if (rank == 1) {
      static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options()).lr(0.2);
      adam.step();
    }
    const Report report = verify(adam, VerifyOptions().name("adam"));
    ASSERT_EQ(report.findings.size(), 2U) << report;
    EXPECT_EQ(report.findings[0].kind, "hyperparameter");
    EXPECT_THAT(names(report.findings[0]), ElementsAre("lr"));
    EXPECT_EQ(report.findings[1].kind, "state");
    EXPECT_THAT(names(report.findings[1]), ::testing::Contains("0.step"));
    EXPECT_THAT(names(report.findings[1]), ::testing::Contains("5.exp_avg"));
  });
}

TEST(Verify, EveryOptionOfLbfgsIsCompared) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor parameter = torch::ones({2}).requires_grad_();
    const auto compared = [&](const torch::optim::LBFGSOptions& options) {
      return names(only_finding(verify(torch::optim::LBFGS({parameter}, options), quickly())));
    };
    torch::optim::LBFGSOptions options(0.1);
    EXPECT_THAT(compared(options), ElementsAre());
    if (rank == 1) options.line_search_fn("strong_wolfe");
    EXPECT_THAT(compared(options), ElementsAre("line_search_fn"));
    options = torch::optim::LBFGSOptions(0.1).max_eval(25 + rank);
    EXPECT_THAT(compared(options), ElementsAre("max_eval"));
  });
}

TEST(Verify, StringsThatAreNoTextAndNumbersThatAreNoneAreToldApart) {
  spawn_ranks(2, [](int rank, int) {
    EXPECT_FALSE(verify(std::string(rank ? "\xff" : "\xfe"), quickly()).ok());
    EXPECT_TRUE(verify(std::string("\xff"), quickly()).ok());
    EXPECT_FALSE(verify(nlohmann::json{{"loss", rank ? std::nan("") : INFINITY}}, quickly()).ok());
    EXPECT_THAT(verify(nlohmann::json{{"a", rank}, {"b", {1.5, "x"}}}, quickly()).findings[0].message,
                HasSubstr("{\"a\": 0, \"b\": [1.5, \"x\"]} on rank 0"));
  });
}

struct StateOfItsOwn : torch::optim::OptimizerCloneableParamState<StateOfItsOwn> {};

TEST(Verify, StateOfAnotherTypeIsNamedAsNotCompared) {
  spawn_ranks(2, [](int, int) {
    const torch::Tensor parameter = torch::ones({2}).requires_grad_();
    torch::optim::SGD sgd({parameter}, 0.1);
    sgd.state()[parameter.unsafeGetTensorImpl()] = std::make_unique<StateOfItsOwn>();
    const Report report = verify(sgd, quickly());
    const Finding finding = only_finding(report);  // and no ok, which would be said of all
    EXPECT_EQ(finding.verdict, "unsupported");
    EXPECT_EQ(finding.severity, Severity::note);
    EXPECT_THAT(finding.message, HasSubstr("0.state; the rest is equal on ranks 0-1: 6 values"));
  });
}

TEST(Verify, Generators) {
  spawn_ranks(2, [](int rank, int) {
    EXPECT_TRUE(verify(at::make_generator<at::CPUGeneratorImpl>(5), quickly()).ok());
    const Report report = verify(at::make_generator<at::CPUGeneratorImpl>(rank), quickly());
    EXPECT_EQ(report.findings[0].verdict, "diverged_seed");
    EXPECT_TRUE(verify(rng(), quickly()).ok());  // threads share theirs
  });
}

TEST(Verify, GeneratorsThatEachRankSeedsByItsNumberAreANote) {
  spawn_ranks(4, [](int rank, int) {
    const auto seeded = [&](uint64_t seed, int draws = 0) {
      const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
      for (int i = 0; i < draws; ++i) torch::rand({1}, generator);
      return only_finding(verify(generator, quickly()));
    };
    const auto number = static_cast<uint64_t>(rank);
    const Finding by_number = seeded(100 + number, rank);
    EXPECT_EQ(by_number.verdict, "diverged_seed");
    EXPECT_EQ(by_number.severity, Severity::note);
    EXPECT_THAT(by_number.message, HasSubstr("each rank seeds by its number (100 + rank), and draws its own numbers"));
    EXPECT_THAT(seeded(7 + 1000 * number).message, HasSubstr("(7 + 1000 * rank)"));
    EXPECT_THAT(seeded(10 - number).message, HasSubstr("(10 + -1 * rank)"));
    // One that has drawn more, one that was seeded otherwise, and seeds that nobody has chosen.
    EXPECT_EQ(seeded(5, rank == 2).severity, Severity::fault);
    EXPECT_EQ(seeded(rank == 2 ? 7 : 100 + number).severity, Severity::fault);
    EXPECT_EQ(seeded(number << 40).severity, Severity::fault);
  });
}

TEST(Verify, AModuleInEvalOnOneRankIsAFault) {
  spawn_ranks(3, [](int rank, int) {
    const auto net = equal_net();
    EXPECT_EQ(verify(net, quickly()).tensors, 9);
    if (rank == 1) net->eval();
    const Finding whole = only_finding(verify(net, quickly()));
    EXPECT_EQ(whole.severity, Severity::fault);
    EXPECT_EQ(whole.verdict, "mismatch");
    EXPECT_EQ(whole.kind, "mode");
    EXPECT_EQ(whole.ranks, RankSet{1});
    EXPECT_THAT(
        whole.message,
        HasSubstr("rank 1 differs from ranks 0,2 in train() and eval(): train() on ranks 0,2, eval() on rank 1"));
    // A part of it, and the same on all ranks.
    net->train();
    if (rank == 1) net->norm->eval();
    const ddp::DistributedDataParallel wrapped(net, ddp::Options());
    EXPECT_THAT(only_finding(verify(wrapped, quickly())).message, HasSubstr("train(), norm eval() on rank 1"));
    net->norm->eval();
    EXPECT_EQ(only_finding(verify(net, quickly())).verdict, "ok");
  });
}

TEST(Verify, LongValuesAreShownWhereTheyPart) {
  spawn_ranks(2, [](int rank, int) {
    const std::string value = std::string(100, 'x') + (rank ? "this" : "that") + std::string(100, 'y');
    const std::string message = only_finding(verify(value, quickly())).message;
    EXPECT_THAT(message, HasSubstr("; ...xx"));
    EXPECT_THAT(message, HasSubstr("xxthatyy"));
    EXPECT_THAT(message, HasSubstr("yy... on rank 0, ...xx"));
    EXPECT_THAT(message, HasSubstr("xxthisyy"));
    EXPECT_LT(message.size(), 200U);
  });
}

TEST(Verify, RanksThatAgreeAreShownAsClasses) {
  spawn_ranks(5, [](int rank, int) {
    const auto message = [&](double value) { return only_finding(verify(torch::full({4}, value), quickly())).message; };
    const std::vector<double> pairs = {1, 1, 2, 2, 3}, minority = {1, 1, 1, 2, 2}, all = {1, 2, 3, 4, 5};
    const auto place = static_cast<size_t>(rank);
    EXPECT_THAT(message(pairs[place]),
                HasSubstr("ranks 0-1 agree, ranks 2-3 agree, rank 4 agrees with none, and they differ"));
    EXPECT_THAT(message(minority[place]), HasSubstr("ranks 3-4 differ from ranks 0-2"));
    EXPECT_THAT(message(minority[place]), HasSubstr("among them ranks 3-4 agree"));
    EXPECT_THAT(message(all[place]), ::testing::Not(HasSubstr("agree")));
    for (const Method method : {Method::kBroadcast, Method::kAllGather})
      EXPECT_THAT(only_finding(verify(torch::full({4}, pairs[place]), quickly().method(method))).message,
                  HasSubstr("ranks 2-3 agree"));
    EXPECT_THAT(only_finding(verify(pairs[place], quickly())).message, HasSubstr("1 on ranks 0-1, 2 on ranks 2-3"));
  });
}

TEST(Verify, ReplicasThatWereTrainedInGroupsAreToldSo) {
  spawn_ranks(4, [](int rank, int) {
    torch::nn::Module module;
    for (int i = 0; i < 3; ++i)
      module.register_parameter("p" + std::to_string(i), (torch::arange(500.0) * 1.7 + i).sin() + 0.01 * (rank / 2));
    EXPECT_THAT(only_finding(verify(module, quickly())).message,
                HasSubstr("trained apart: are gradients reduced over a sub-group?"));
  });
}

TEST(Verify, EveryOkSaysWhatItHasNotChecked) {
  spawn_ranks(2, [](int, int) {
    const auto net = equal_net();
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1));
    const auto message = [](const auto& object, VerifyOptions options) {
      return only_finding(verify(object, options)).message;
    };
    EXPECT_THAT(message(net, quickly()), HasSubstr("; not checked: gradients, what is not registered"));
    EXPECT_THAT(message(adam, quickly()), HasSubstr("; not checked: the parameters themselves"));
    EXPECT_THAT(message(torch::ones({2}), quickly()), HasSubstr("; not checked: strides"));
    EXPECT_THAT(message(rng(), quickly()), HasSubstr("; not checked: generators of the program's own"));
    EXPECT_THAT(message(torch::ones({2}), quickly().method(Method::kAllGather)), HasSubstr("within rtol 1e-05"));
    EXPECT_THAT(message(3, quickly()), ::testing::Not(HasSubstr("not checked")));
  });
}

TEST(Verify, KeysThatReadAlikeAndEmptyContainersAreToldApart) {
  spawn_ranks(2, [](int rank, int) {
    using Map = std::map<std::string, torch::Tensor>;
    const auto tensor = [](double value) { return torch::full({2}, value); };
    const auto same =
        std::make_tuple(std::map<std::string, Map>{{"a", {{"b.c", tensor(1)}}}, {"a.b", {{"c", tensor(rank)}}}},
                        rank ? Map{{"more", tensor(1)}} : Map{{"other", tensor(1)}});
    const Report report = verify(same, quickly());
    EXPECT_TRUE(std::ranges::any_of(report.findings, [](const Finding& each) { return each.verdict == "mismatch"; }))
        << report;
    using Maps = std::map<std::string, Map>;
    EXPECT_FALSE(verify(rank ? Maps{{"state", {}}} : Maps{}, quickly()).ok());
  });
}

TEST(Verify, BuffersOfAWrapperWithoutBroadcastBuffersAreANote) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    ddp::DistributedDataParallel quiet(net, ddp::Options().broadcast_buffers(false));
    change(net->norm->running_mean, [&](torch::Tensor& mean) { mean.fill_(rank); });
    const Finding local = only_finding(verify(quiet, quickly()));
    EXPECT_EQ(local.verdict, "ok");
    EXPECT_EQ(local.severity, Severity::note);
    EXPECT_THAT(names(local), ElementsAre("norm.running_mean"));
    EXPECT_TRUE(verify(net, quickly()).ok());  // the wrapper lives around it
    const auto bare = equal_net();
    change(bare->norm->running_mean, [&](torch::Tensor& mean) { mean.fill_(rank); });
    EXPECT_FALSE(verify(bare, quickly()).ok());
  });
}

TEST(Verify, BuffersThatForwardWritesAreANoteAndOthersAFault) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    ddp::DistributedDataParallel wrapped(net, ddp::Options());
    change(net->norm->running_mean, [&](torch::Tensor& mean) { mean.fill_(rank); });
    EXPECT_FALSE(verify(wrapped, quickly()).ok());  // no forward has run: somebody else has written them
    for (int step = 0; step < 2; ++step) {
      wrapped(torch::arange(32.0).reshape({4, 8}) * (rank + 1) * 0.01).pow(2).mean().backward();
      for (const Report& report : {verify(wrapped, quickly()), verify(net, quickly())}) {
        const Finding finding = only_finding(report);
        EXPECT_EQ(finding.verdict, "ok");
        EXPECT_THAT(names(finding), ElementsAre("norm.running_mean", "norm.running_var"));
        EXPECT_THAT(finding.message, HasSubstr("forward has written them"));
      }
    }
    wrapped.sync_module_states();
    EXPECT_THAT(verify(wrapped, quickly()).findings[0].message, HasSubstr("equal on ranks 0-1"));
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
      return verify(module, quickly()).findings.at(0).message;
    };
    EXPECT_THAT(made(rank, 0), HasSubstr("initialised from different seeds?"));
    EXPECT_THAT(made(rank == 1, 0), HasSubstr("loaded on some ranks only"));
    EXPECT_THAT(made(0, 0.01 * rank), HasSubstr("trained apart"));
  });
}

// Rule 9: looking does not touch.
TEST(Verify, LeavesTrainingBitIdenticalAndTheUsersGroupAlone) {
  spawn_ranks(2, [](int rank, int) {
    const auto train = [&](bool look) {
      const auto net = equal_net();
      ddp::DistributedDataParallel wrapped(net, ddp::Options());
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
      for (int step = 0; step < 4; ++step) {
        sgd.zero_grad();
        wrapped(torch::arange(32.0).reshape({4, 8}) * (rank + 1) * 0.01).pow(2).mean().backward();
        sgd.step();
        const auto before = dist::default_group()->getSequenceNumberForGroup();
        if (look) {
          EXPECT_TRUE(verify(net->parameters(), quickly()).ok());
          EXPECT_TRUE(verify(sgd, quickly()).ok());
        }
        EXPECT_EQ(dist::default_group()->getSequenceNumberForGroup(), before);
      }
      return fingerprint(net->parameters());
    };
    EXPECT_EQ(train(false), train(true));
  });
}

TEST(Verify, TheLowestRankThatCameTellsTheSession) {
  ToldFindings told;
  spawn_ranks(3, [](int rank, int) {
    verify(torch::full({2}, rank == 1), quickly());
    if (rank != 0) verify(torch::ones({2}), quickly().deadline(std::chrono::milliseconds(100)));
  });
  ASSERT_EQ(told.all().size(), 2U);
  EXPECT_EQ(told.all()[0].ranks, RankSet{1});
  EXPECT_EQ(told.all()[1].verdict, "missing");
  EXPECT_EQ(told.all()[1].ranks, RankSet{0});
}

TEST(Verify, ReplicasInOneProcess) {
  std::vector<Subject> subjects;
  for (int rank = 0; rank < 3; ++rank) subjects.push_back(subject_of(torch::full({5}, rank == 1 ? 1.0 : 0.0), "t"));
  const Report report = verify_here(subjects, RankSet::all(3), VerifyOptions());
  EXPECT_EQ(report.findings[0].ranks, RankSet{1});
  EXPECT_EQ(report.findings[0].tensors[0].count, 5);
  subjects[1] = subject_of(torch::zeros({5}), "t");
  EXPECT_TRUE(verify_here(subjects, RankSet::all(3), VerifyOptions()).ok());
}

TEST(Verify, OverProcessesAndAStoreOfSockets) {
  const auto outcomes = testing::run_as_processes(2, [](int rank, int) {
    const torch::Tensor tensor = torch::ones({100000});
    if (rank == 1) {
      EXPECT_EQ(verify(tensor, quickly().deadline(std::chrono::milliseconds(300))).findings[0].verdict, "missing");
    }
    dist::barrier();
    EXPECT_TRUE(verify(tensor, quickly()).ok());
    EXPECT_EQ(verify(tensor + rank, quickly()).findings[0].tensors[0].count, 100000);
    torch::manual_seed(static_cast<uint64_t>(rank));
    EXPECT_EQ(verify(rng(), quickly()).findings[0].verdict, "diverged_seed");
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

}  // namespace
}  // namespace lockstep::inspect
