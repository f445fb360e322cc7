// Submodules that are registered in the order of a hash map, which is not the same in all processes.
// symptom: gradients of one layer are averaged with those of another
// run: `%verify net`
// cause: iteration over an unordered container decides the order of parameters
// fix: register in a fixed order (a vector, sorted names)
// ranks: 3
// expect: verify:order_mismatch kind=parameter ranks=2 reference=0-1 object=net

// %% another order on rank 2
struct Net : torch::nn::Module {
  explicit Net(const std::vector<std::string>& names) {
    torch::NoGradGuard guard;
    for (const auto& name : names) {
      auto layer = register_module(name, torch::nn::Linear(4, 4));
      layer->weight.fill_(0.1);
      layer->bias.fill_(0);
    }
  }
};
auto net = std::make_shared<Net>(rank == 2 ? std::vector<std::string>{"depth", "colour"}
                                           : std::vector<std::string>{"colour", "depth"});
%verify net
