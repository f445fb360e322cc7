// One rank has read a checkpoint in another order: query and key have changed places.
// symptom: no error and normal norms, but the attention of one replica is wrong
// run: `%verify net`
// cause: parameters are matched by position (a list of files, `zip`) and not by name
// fix: match by name
// ranks: 3
// expect: verify:mismatch kind=parameter ranks=1 reference=0,2 object=net tensors=query.weight,query.bias,key.weight,key.bias

// %% load by position
struct Attention : torch::nn::Module {
  torch::nn::Linear query{register_module("query", torch::nn::Linear(8, 8))};
  torch::nn::Linear key{register_module("key", torch::nn::Linear(8, 8))};
  torch::nn::Linear value{register_module("value", torch::nn::Linear(8, 8))};
};
set_seed(3);
auto saved = std::make_shared<Attention>();
auto net = std::make_shared<Attention>();
{
  torch::NoGradGuard guard;
  const auto from = saved->parameters(), to = net->parameters();
  const std::vector<size_t> order = rank == 1 ? std::vector<size_t>{2, 3, 0, 1, 4, 5} : std::vector<size_t>{0, 1, 2, 3, 4, 5};
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[order[i]]);
}
%verify net
